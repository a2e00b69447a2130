"""Hostile input for every file that the library reads.

`readers` names each reader with a valid file for it; `tests/hostile` runs them on mutated files (hypothesis), and
`python -m checks.fuzz NAME` on files that a coverage-guided fuzzer makes (atheris, from the extra `fuzz`).
"""
