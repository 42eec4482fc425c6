"""The actors of the simulated world, each in its own file.

To add an actor: subclass `simulation.scenario.Actor` in a new file, and put the class into
`ACTORS`. Its `draw` adds steps to the plan, with names and numbers as arguments. `act` takes one of
these steps, and does nothing if an object does not exist (any step may be left out when a failure
is shrunk). `changed` sees every change, like a controller, and may plan its reactions with
`world.after`. `calm` is called after the last step. `world.server` has `create`, `change`, `delete`
and `storage`. Random numbers come from `world.random`, or in `draw` from `plan.random`. Each run
has new instances.

Faults are actors too: see `faults.py`. Actors draw in the order of `ACTORS`: put new ones at the
end, so that in each seed the steps of other actors stay the same.
"""

from simulation.actors.accelerators import Accelerators
from simulation.actors.claims import Claims
from simulation.actors.coincidences import Coincidences
from simulation.actors.devices import Devices
from simulation.actors.extenders import Extenders
from simulation.actors.faults import Faults
from simulation.actors.frameworks import Frameworks
from simulation.actors.gangs import Gangs
from simulation.actors.groups import Groups
from simulation.actors.kubelets import Kubelets
from simulation.actors.loners import Loners
from simulation.actors.moments import Moments, RareMoments
from simulation.actors.moves import Moves
from simulation.actors.neighbours import Neighbours
from simulation.actors.nodes import Nodes
from simulation.actors.owners import DaemonSets, Jobs
from simulation.actors.plugin_trials import PluginTrials
from simulation.actors.plugins import Plugins
from simulation.actors.pods import Pods
from simulation.actors.preemption import Preemption
from simulation.actors.profiles import Profiles
from simulation.actors.protection import Protection
from simulation.actors.queues import Queues
from simulation.actors.readers import Readers
from simulation.actors.rebalancing import Rebalancing
from simulation.actors.rivals import Rivals
from simulation.actors.strangers import Strangers
from simulation.actors.subjects import Subjects
from simulation.actors.tenants import Tenants
from simulation.actors.volumes import Volumes
from simulation.scenario import Actor

__all__ = ["ACTORS"]

ACTORS: tuple[type[Actor], ...] = (
    Faults,
    Profiles,
    Nodes,
    Pods,
    Kubelets,
    Groups,
    Extenders,
    Claims,
    Tenants,
    Plugins,
    Devices,
    Neighbours,
    DaemonSets,
    Jobs,
    Rebalancing,
    Readers,
    Gangs,
    Strangers,
    Rivals,
    Subjects,
    Preemption,
    Moves,
    Volumes,
    Accelerators,
    Moments,
    PluginTrials,
    Protection,
    Coincidences,
    RareMoments,
    Loners,
    Frameworks,
    Queues,
)
