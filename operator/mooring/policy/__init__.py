"""The SchedulingProfile and plugin arguments: models, validation, defaults and the CRD."""
