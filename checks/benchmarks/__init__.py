"""Side-by-side measurements: each prints what was compared and the ratio, from one run on one machine."""
