"""Texts of `nvidia-smi topo -m`, as machines of different kinds print them."""

A100_NVSWITCH = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\
\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A
GPU1\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A
GPU2\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tNV12\tSYS\tPXB\t16-31,144-159\t1\t\tN/A
GPU3\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tNV12\tSYS\tPXB\t16-31,144-159\t1\t\tN/A
GPU4\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tNV12\tSYS\tSYS\t112-127,240-255\t7\t\tN/A
GPU5\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tNV12\tSYS\tSYS\t112-127,240-255\t7\t\tN/A
GPU6\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tNV12\tSYS\tSYS\t80-95,208-223\t5\t\tN/A
GPU7\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\tNV12\t X \tSYS\tSYS\t80-95,208-223\t5\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""

V100_HYBRID_CUBE = """\
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity
GPU0     X      NV1     NV1     NV2     PIX     0-19,40-59
GPU1    NV1      X      NV2     NV1     PIX     0-19,40-59
GPU2    NV1     NV2      X      NV2     PHB     0-19,40-59
GPU3    NV2     NV1     NV2      X      PHB     0-19,40-59
mlx5_0  PIX     PIX     PHB     PHB      X

Legend:
  X    = Self
"""

FOUR_ON_TWO_SOCKETS = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      PIX     SYS     SYS     0-15    0
GPU1    PIX      X      SYS     SYS     0-15    0
GPU2    SYS     SYS      X      PHB     16-31   1
GPU3    SYS     SYS     PHB      X      16-31   1
"""

ONE_CARD = """\
        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      0-15    0               N/A
"""
