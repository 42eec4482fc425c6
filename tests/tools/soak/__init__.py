"""`make soak`: random churn and random faults for half an hour, and what they did."""
