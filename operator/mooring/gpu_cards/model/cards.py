"""GPU cards of nodes and the requests of pods for cards, parsed from API objects.

A `CardFormat` has the names of resources and annotations that a cluster uses. All values from nodes
and pods are limited in size and number. A malformed value on a node is ignored; on a pod it raises
`CardRequestError`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mooring.model.bounded_cache import cached
from mooring.model.node import Node
from mooring.model.pod_spec import PodSpec

MAX_CARDS: Final = 16
"""The most cards of a node; further cards are never assigned."""
_MOST_SHARES: Final = 8
_MOST_BYTES: Final = 16_384
_MOST_MEMORY: Final = 2**40
"""The most memory of a card, in units of `CardFormat.mib_per_unit` MiB; a larger value is cut to
this number, so that sums fit into int64."""

_CHANGING_SUFFIXES: Final = ("_ASSIGNED", "_ASSUME_TIME")

GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""The node label of GPU feature discovery with the product name of the cards; two more labels have
their number and their memory in MiB."""

GPU_TYPE: Final = "scheduling.mooring.dev/gpu-type"
MEMORY_AT_LEAST: Final = "scheduling.mooring.dev/gpu-memory-at-least"
LINK_REQUIRED: Final = "scheduling.mooring.dev/gpu-link-required"
LINK_PREFERRED: Final = "scheduling.mooring.dev/gpu-link-preferred"
_FRACTION: Final = "gpu-fraction"
_FRACTION_MEMORY: Final = "gpu-memory"
_FRACTION_CARDS: Final = "gpu-fraction-num-devices"

Assignment = tuple[tuple[int, ...], ...]
"""The cards of a pod: for each of its requested shares, the numbers of the cards on the node."""
Links = tuple[tuple[int, ...], ...]
"""A symmetric matrix of the ranks of links; 0 on the diagonal and for unknown links."""

_CODES: Final[Mapping[str, int]] = {"SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}
_NVLINK: Final = re.compile(r"NV([1-9][0-9]?)")
_NVLINK_BASE: Final = 10
LINK_RANKS: Final[Mapping[str, int]] = {"NUMANode": 2, "PCIeSwitch": 4, "NVLink": _NVLINK_BASE + 1}
"""The lowest rank of each kind of link that a pod can request."""


def link_rank(code: str) -> int:
    """Return the rank of a link code of `nvidia-smi topo -m`: higher if closer, 0 if unknown."""
    nvlink = _NVLINK.fullmatch(code)
    return _NVLINK_BASE + int(nvlink[1]) if nvlink else _CODES.get(code, 0)


@dataclass(frozen=True, slots=True)
class CardFormat:
    """The names of resources and annotations for cards in a cluster; an empty name is not used."""

    memory_resource: str = ""
    """The resource for GPU memory. A pod requests memory of a card; a node publishes the sum of
    its cards' memory."""
    memory_percent_resource: str = ""
    """The resource by which a pod requests a card's memory in percent."""
    cores_resource: str = ""
    """The resource by which a pod requests a card's compute in percent."""
    whole_resource: str = ""
    """The resource for whole cards. A container that also requests memory or compute requests this
    number of shares."""
    count_resource: str = ""
    """The resource by which a node publishes the number of its cards."""
    mib_per_unit: int = 1
    """The number of MiB in one unit of `memory_resource`."""
    per_container: bool = False
    """Whether each container has its own share; otherwise the pod has one share on one card."""
    by_annotation: bool = False
    """Whether pods may request a fraction with the annotations `gpu-fraction` and `gpu-memory`."""
    annotation_prefix: str = ""
    """The prefix of gpushare's annotations, such as ALIYUN_COM_GPU_MEM."""
    cards_annotation: str = "scheduling.mooring.dev/gpu-cards"
    """The annotation of a pod with the numbers of its cards; semicolons separate shares."""
    topology_annotation: str = "scheduling.mooring.dev/gpu-topology"
    unhealthy_annotation: str = "scheduling.mooring.dev/gpu-unhealthy"
    """The annotation of a node with the numbers of cards that must not be used."""

    def assigned(self, annotations: Mapping[str, str], request: "CardRequest") -> Assignment | None:
        """Return the cards in a bound pod's annotations; None if missing or not as requested."""
        index = f"{self.annotation_prefix}_IDX" if self.writes_index(request) else ""
        assignment = parse_assignment(annotations.get(index or self.cards_annotation, ""))
        wanted = [share.cards for share in request.shares]
        # A user could name fewer cards than requested, and used cards would seem free.
        if assignment is None or [len(cards) for cards in assignment] != wanted:
            return None
        return assignment

    def writes_index(self, request: "CardRequest") -> bool:
        """Return whether gpushare's annotation names the cards of this request.

        The format must have this annotation, and the request must be one share of one card.
        """
        share, *others = request.shares
        return bool(self.annotation_prefix) and not (others or share.whole or share.cards > 1)


class CardRequestError(Exception):
    """Raised if a pod's request for cards is malformed; the text names the field."""


@dataclass(frozen=True, slots=True)
class CardShare:
    """A request for `cards` different cards: equal parts of the cards, or whole cards.

    A part has `memory` units of `CardFormat.mib_per_unit` MiB. If `permille` is above 0, a part has
    this many thousandths of the card's memory instead. `cores` is compute in percent of a card.
    """

    cards: int = 1
    memory: int = 0
    permille: int = 0
    cores: int = 0
    whole: bool = False

    def memory_on(self, total: int) -> int:
        """Return how much memory the share takes of a card with `total` memory."""
        if self.whole:
            return total
        return -(-total * self.permille // 1000) if self.permille else self.memory

    @property
    def cores_on_card(self) -> int:
        """The share of a card's compute, in percent."""
        return 100 if self.whole else self.cores


@dataclass(frozen=True, slots=True)
class CardRequest:
    """A pod's request for cards, all on one node.

    `products` (empty: any) and `least_memory` (MiB) restrict the cards. `link_required` is the
    lowest allowed rank of links between whole cards, `link_preferred` the lowest preferred rank; 0
    means any rank.
    """

    shares: tuple[CardShare, ...]
    products: frozenset[str] = frozenset()
    least_memory: int = 0
    link_required: int = 0
    link_preferred: int = 0

    @property
    def whole_cards(self) -> int:
        """The number of requested whole cards."""
        return sum(share.cards for share in self.shares if share.whole)

    @property
    def is_whole(self) -> bool:
        """Whether only whole cards are requested."""
        return all(share.whole for share in self.shares)

    @property
    def is_shared(self) -> bool:
        """Whether only shares of cards are requested."""
        return not any(share.whole for share in self.shares)


@cached(16 * 2**20)
def card_request(spec: PodSpec, form: CardFormat) -> CardRequest | None:
    """Return the request for cards in the spec, or None; CardRequestError if malformed."""
    if form.by_annotation:
        shares = _by_annotation(spec, form)
    elif form.per_container:
        shares = [s for amounts in spec.extended if (s := _of_container(amounts, form))]
    else:
        shares = _of_pod(spec.demand.resources, form)
    if not shares:
        return None
    if len(shares) > _MOST_SHARES:
        raise CardRequestError(
            f"{len(shares)} containers request shares of GPUs; at most {_MOST_SHARES} can"
        )
    annotations = spec.card_annotations
    products = (part.strip() for part in annotations.get(GPU_TYPE, "").split(","))
    return CardRequest(
        tuple(shares),
        frozenset(product for product in products if product),
        _whole_number(annotations, MEMORY_AT_LEAST, 0),
        _link(annotations, LINK_REQUIRED),
        _link(annotations, LINK_PREFERRED),
    )


def _of_pod(amounts: Mapping[str, int], form: CardFormat) -> list[CardShare]:
    memory, percent = _amount(amounts, form.memory_resource), _percent(amounts, form)
    cores, whole = _amount(amounts, form.cores_resource), _amount(amounts, form.whole_resource)
    shares = []
    if memory or percent or cores:
        shares.append(CardShare(1, memory, 10 * percent, cores))
    if whole:
        shares.append(CardShare(min(whole, MAX_CARDS + 1), whole=True))
    return shares


def _of_container(amounts: Mapping[str, int], form: CardFormat) -> CardShare | None:
    memory, percent = _amount(amounts, form.memory_resource), _percent(amounts, form)
    cores, cards = _amount(amounts, form.cores_resource), _amount(amounts, form.whole_resource)
    cards = min(cards, MAX_CARDS + 1)
    if memory or percent or cores:
        return CardShare(cards or 1, memory, 0 if memory else 10 * percent, cores)
    return CardShare(cards, whole=True) if cards else None


def _by_annotation(spec: PodSpec, form: CardFormat) -> list[CardShare]:
    annotations = spec.card_annotations
    cards = min(_whole_number(annotations, _FRACTION_CARDS, 1), MAX_CARDS + 1)
    memory = _whole_number(annotations, _FRACTION_MEMORY, 0)
    fraction = annotations.get(_FRACTION)
    if fraction is not None:
        return [CardShare(cards, permille=_permille(fraction))]
    if memory:
        return [CardShare(cards, -(-memory // form.mib_per_unit))]
    whole = _amount(spec.demand.resources, form.whole_resource)
    return [CardShare(min(whole, MAX_CARDS + 1), whole=True)] if whole else []


def _amount(amounts: Mapping[str, int], resource: str) -> int:
    return min(amounts.get(resource, 0), _MOST_MEMORY) if resource else 0


def _percent(amounts: Mapping[str, int], form: CardFormat) -> int:
    percent = _amount(amounts, form.memory_percent_resource)
    if percent > 100:
        raise CardRequestError(f"{form.memory_percent_resource}: must be at most 100")
    return percent


def _permille(text: str) -> int:
    if re.fullmatch(r"0?\.[0-9]{1,9}|1(\.0{1,9})?|0\.[0-9]{1,9}", text):
        value = -(-int(float(text) * 10**9 + 0.5) // 10**6)
        if value:
            return value
    raise CardRequestError(
        f"annotation {_FRACTION}: {_shown(text)} must be above 0 and at most 1, such as 0.5"
    )


def _whole_number(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key)
    if text is None:
        return default
    if re.fullmatch(r"[1-9][0-9]{0,11}", text):
        return min(int(text), _MOST_MEMORY)
    raise CardRequestError(f"annotation {key}: {_shown(text)} must be a whole number above 0")


def _link(annotations: Mapping[str, str], key: str) -> int:
    text = annotations.get(key)
    if text is None:
        return 0
    if text not in LINK_RANKS:
        known = ", ".join(LINK_RANKS)
        raise CardRequestError(f"annotation {key}: {_shown(text)} must be one of {known}")
    return LINK_RANKS[text]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


@cached(2**20)
def parse_assignment(text: str) -> Assignment | None:
    """Parse the cards in an annotation, such as `0,1` or `0;2,3`; None if it is malformed."""
    if len(text) > 256 or not re.fullmatch(
        r"[0-9]{1,2}(,[0-9]{1,2})*(;[0-9]{1,2}(,[0-9]{1,2})*)*", text
    ):
        return None
    shares = tuple(tuple(int(card) for card in share.split(",")) for share in text.split(";"))
    distinct = all(len(set(cards)) == len(cards) for cards in shares)
    return shares if distinct and len(shares) <= _MOST_SHARES else None


def assignment_text(assignment: Assignment) -> str:
    """Return the text for an annotation; `parse_assignment` is the reverse."""
    return ";".join(",".join(str(card) for card in cards) for cards in assignment)


def same_cards(wanted: Mapping[str, str], found: Mapping[str, str]) -> bool:
    """Return whether `found`, the annotations of a pod, assign the same cards as `wanted`."""
    # Two annotations of gpushare are ignored: a device plugin rewrites `_ASSIGNED`, and
    # `_ASSUME_TIME` differs between attempts.
    return all(
        found.get(key) == value
        for key, value in wanted.items()
        if not key.endswith(_CHANGING_SUFFIXES)
    )


@dataclass(frozen=True, slots=True)
class NodeCards:
    """The cards of a node, at most `MAX_CARDS`, by number.

    `memory` is in units of `CardFormat.mib_per_unit` MiB; 0 if unknown. `unhealthy` cards must not
    be used. `unnamed` is the number of further unusable cards, whose numbers are unknown.
    """

    memory: tuple[int, ...]
    products: tuple[str, ...]
    unhealthy: frozenset[int]
    unnamed: int
    links: Links

    def __len__(self) -> int:
        return len(self.memory)


NO_CARDS: Final = NodeCards((), (), frozenset(), 0, ())


@dataclass(frozen=True, slots=True)
class _Topology:
    links: Links
    memory: tuple[int, ...]
    products: tuple[str, ...]


_NO_TOPOLOGY: Final = _Topology((), (), ())


def node_cards(node: Node, form: CardFormat) -> NodeCards:
    """Return the cards that a node publishes by its resources, labels and annotations."""
    topology = _topology(node.annotations.get(form.topology_annotation, ""))
    counted = _card_count(node, form) or len(topology.links) or len(topology.memory)
    if not counted:
        return NO_CARDS
    count = min(counted, MAX_CARDS)
    memory = _capacity(node, form.memory_resource) // counted
    memory = memory or _label(node, GPU_MEMORY) // form.mib_per_unit
    product = node.labels.get(GPU_PRODUCT, "")
    units = tuple(mib // form.mib_per_unit for mib in topology.memory)
    known = len(units) == counted
    named = frozenset(c for c in _numbers(node.annotations.get(form.unhealthy_annotation, "")))
    named = frozenset(card for card in named if card < count)
    return NodeCards(
        units[:count] if known else (memory,) * count,
        topology.products[:count] if known else (product,) * count,
        named,
        max(0, _lost(node, form, counted, memory) - len(named)),
        _cut(topology.links, count) if len(topology.links) == counted else (),
    )


def _cut(links: Links, count: int) -> Links:
    return tuple(row[:count] for row in links[:count])


def _card_count(node: Node, form: CardFormat) -> int:
    count = _capacity(node, form.count_resource) or _label(node, GPU_COUNT)
    if not count and not form.per_container:
        count = _capacity(node, form.whole_resource)
    return count


def _capacity(node: Node, resource: str) -> int:
    if not resource:
        return 0
    # As if all cards were healthy.
    amount = node.allocatable.get(resource, 0) + node.unavailable.get(resource, 0)
    return min(max(amount, 0), _MOST_MEMORY)


def _lost(node: Node, form: CardFormat, count: int, memory: int) -> int:
    # The resource with the most unusable cards decides.
    lost = node.unavailable.get(form.count_resource, 0)
    whole = _capacity(node, form.whole_resource)
    if whole:
        # With HAMi or time slicing, the node offers each card several times.
        lost = max(lost, -(-node.unavailable.get(form.whole_resource, 0) * count // whole))
    if memory and form.memory_resource:
        lost = max(lost, -(-node.unavailable.get(form.memory_resource, 0) // memory))
    return min(max(lost, 0), MAX_CARDS)


def _label(node: Node, key: str) -> int:
    text = node.labels.get(key, "")
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else 0


def _numbers(text: str) -> tuple[int, ...]:
    assignment = parse_assignment(text.replace(" ", "")) if len(text) <= 256 else None
    return assignment[0] if assignment else ()


@cached(8 * 2**20)
def _topology(text: str) -> _Topology:
    if not text or len(text) > _MOST_BYTES:
        return _NO_TOPOLOGY
    try:
        raw = orjson.loads(text)
    except ValueError:
        return _NO_TOPOLOGY
    if not isinstance(raw, dict):
        return _NO_TOPOLOGY
    # docs/gpus.md describes the format.
    memory, products = _described(raw.get("cards"))
    return _Topology(_links(raw.get("links")), memory, products)


def _described(raw: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if not isinstance(raw, list) or not 0 < len(raw) <= MAX_CARDS:
        return (), ()
    memory, products = [], []
    for card in raw:
        if not isinstance(card, dict):
            return (), ()
        mib, product = card.get("memory"), card.get("product", "")
        if type(mib) is not int or not 0 <= mib <= _MOST_MEMORY or not isinstance(product, str):
            return (), ()
        memory.append(mib)
        products.append(product)
    return tuple(memory), tuple(products)


def _links(raw: Any) -> Links:
    if not isinstance(raw, list) or not 0 < len(raw) <= MAX_CARDS:
        return ()
    count = len(raw)
    for row in raw:
        if not isinstance(row, list) or len(row) != count:
            return ()
        if not all(isinstance(code, str) and len(code) <= 8 for code in row):
            return ()
    # If the two directions of a link differ, the lower rank is used.
    return tuple(
        tuple(
            0 if i == j else min(link_rank(raw[i][j]), link_rank(raw[j][i])) for j in range(count)
        )
        for i in range(count)
    )
