"""Kills, full disks and damaged files, hundreds of times at random points: `python -m checks.torture`.

The commands run as processes of their own, forked from one that has imported everything, so that a kill costs about a
second. After each fault the run is resumed; what it gives in the end is compared bit by bit with a run that nothing
happened to.

- `process`: commands in forked processes;
- `faults`: what happens to them, and to their files;
- `train`, `audit`: what is run, and what must hold afterwards;
- `campaign`: how often, and the counts.
"""
