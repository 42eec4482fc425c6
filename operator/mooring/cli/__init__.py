"""The commands, one per file; each reads its words, asks the room that knows, and prints.

Exit codes: 0 done, 1 the answer is no, 2 wrong use or bad input.
"""
