"""What every test may use."""

from hypothesis import settings

# A busy machine is no failure: nothing is timed in tests.
settings.register_profile("mooring", deadline=None)
settings.load_profile("mooring")

pytest_plugins = ["controlplane.fixtures"]
