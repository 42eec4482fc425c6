"""The plugin DefaultPreemption: victims, candidates, and the choice among them."""
