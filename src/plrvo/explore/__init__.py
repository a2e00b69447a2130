"""A local page with sliders, behind which the accountant answers."""
