"""Scripts that draw the pictures of the documentation; run one with `python -m docs.figures.NAME`."""
