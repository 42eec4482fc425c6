"""Kubernetes' own performance workloads, as its test/integration/scheduler_perf describes them."""
