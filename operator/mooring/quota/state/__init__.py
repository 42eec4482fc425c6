"""What queues use, and what they may use."""
