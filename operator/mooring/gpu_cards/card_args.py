"""Arguments of the plugins that assign GPU cards."""

from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from mooring.gpu_cards.model.cards import CardFormat
from mooring.policy.name_syntax import ExtendedResource, QualifiedName
from mooring.policy.reading import PolicyModel

PRESETS: Final = {
    "gpushare": CardFormat(
        memory_resource="aliyun.com/gpu-mem",
        cores_resource="aliyun.com/gpu-core.percentage",
        whole_resource="nvidia.com/gpu",
        count_resource="aliyun.com/gpu-count",
        mib_per_unit=1024,
        annotation_prefix="ALIYUN_COM_GPU_MEM",
    ),
    "hami": CardFormat(
        memory_resource="nvidia.com/gpumem",
        memory_percent_resource="nvidia.com/gpumem-percentage",
        cores_resource="nvidia.com/gpucores",
        whole_resource="nvidia.com/gpu",
        per_container=True,
    ),
    "kai": CardFormat(whole_resource="nvidia.com/gpu", by_annotation=True),
}
"""How three projects write cards; everything else is the same for all."""

Strategy = Literal["Binpack", "Spread"]


def _annotation_prefix(prefix: str) -> str:
    if not prefix.replace("_", "a").isalnum() or not prefix.isascii() or len(prefix) > 50:
        raise ValueError(f'"{prefix}" must be letters, digits and "_", at most 50')
    return prefix


class CardArgs(PolicyModel):
    """Names of GPU cards on nodes and in pods; a given field replaces that of the preset."""

    preset: Literal["gpushare", "hami", "kai"] = "gpushare"
    """Whose names of resources and annotations hold."""
    memory_resource: ExtendedResource | None = None
    """Memory of a share of a card; nodes publish the sum over their cards."""
    memory_percent_resource: ExtendedResource | None = None
    """Memory of a share in percent of the card."""
    cores_resource: ExtendedResource | None = None
    """Compute of a share in percent of the card."""
    whole_resource: ExtendedResource | None = None
    """Number of whole cards."""
    count_resource: ExtendedResource | None = None
    """By which nodes publish how many cards they have."""
    mib_per_unit: int | None = Field(None, ge=1, le=2**20)
    """MiB per unit of memoryResource."""
    annotation_prefix: Annotated[str, AfterValidator(_annotation_prefix)] | None = None
    """The beginning of gpushare's annotations, ALIYUN_COM_GPU_MEM."""
    cards_annotation: QualifiedName | None = None
    """The annotation of a pod that names its cards."""
    topology_annotation: QualifiedName | None = None
    """The annotation of a node that describes its cards and their links."""
    unhealthy_annotation: QualifiedName | None = None
    """The annotation of a node that names cards that must not be used."""

    def card_format(self) -> CardFormat:
        """Return the names in force."""
        given = self.model_dump(include=set(CardArgs.model_fields) - {"preset"}, exclude_none=True)
        return replace(PRESETS[self.preset], **given)


class GPUShareArgs(CardArgs):
    """How shares of cards are placed."""

    nodes: Strategy = "Binpack"
    """Whether shares go to the nodes whose cards are fullest, or emptiest."""
    cards: Literal["Binpack", "Spread", "FirstFit", "LeastFragmentation"] = "Binpack"
    """Which of a node's cards a share gets: the fullest, the emptiest, the first, or the one by
    which least becomes unusable for requests that are typical of the cluster."""
