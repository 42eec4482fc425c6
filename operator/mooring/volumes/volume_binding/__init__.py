"""The plugin VolumeBinding: finds volumes for claims, assumes and binds them."""
