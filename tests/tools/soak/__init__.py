"""`make soak`: random changes and random faults for half an hour, and a verdict."""
