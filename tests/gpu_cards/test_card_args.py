"""The names of resources and annotations in each preset, and fields that replace them."""

from mooring.gpu_cards.card_args import PRESETS, GPUShareArgs
from mooring.policy.reading import read


def test_without_arguments_names_are_those_of_gpushare() -> None:
    form = GPUShareArgs().card_format()
    assert form == PRESETS["gpushare"]
    assert form.memory_resource == "aliyun.com/gpu-mem"
    assert form.annotation_prefix == "ALIYUN_COM_GPU_MEM"


def test_a_name_that_is_given_replaces_that_of_the_preset() -> None:
    args = read(GPUShareArgs, {"preset": "hami", "coresResource": "nvidia.com/cores"}, "")
    form = args.card_format()
    assert form.cores_resource == "nvidia.com/cores"
    assert form.memory_resource == "nvidia.com/gpumem"
