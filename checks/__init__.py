"""Long runs that look for what tests do not: side by side with peers, with faults, with inputs of a fuzzer."""
