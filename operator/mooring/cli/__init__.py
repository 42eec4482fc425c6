"""The commands of `mooring`, one per file.

Exit codes: 0 success, 1 the answer is no, 2 wrong usage or bad input.
"""
