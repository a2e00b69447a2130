"""Measured audits: one file each, all made by the commands in `__main__`."""
