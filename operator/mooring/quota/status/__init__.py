"""The status of Queues."""
