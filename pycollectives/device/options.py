"""Settings of a device communicator: the same on all ranks."""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True)
class Options:
    """How a rank's device memory is divided, and how calls are cut. Of two emulated runs with one seed each step is the same.

    `protocol`: of every message, or "" to choose by the size of the call and, for LL128, by the links between the devices.
    `slot_bytes`: of a message by LL, LL128, Simple. `blocks`: of one call at most; `depth`: messages in flight per peer and block.
    `least_slice`: bytes below which data are not cut further. `any_kernel`: by the kernel that decides on type and operator at
    run time, also where there is one of its own. `native`: the direct algorithms by their native kernels; `staging_bytes` stand
    in there for arrays that peers cannot reach, and with `always_stage` for all. `stages_host`: arrays in host memory are moved
    by the device, too, through copies there. `hand_ring`: sums of float32 by the algorithm ring go by the ring that is written by
    hand, to compare with. `multicast`: native kernels by the switch between the devices, where there is one and each rank has a
    device of its own. `fused`: one launch for the ranks of a process on one device, also where each could have one of its own.
    """

    emulated: bool = False
    protocol: str = ""
    blocks: int = 32
    depth: int = 4
    slot_bytes: tuple[int, int, int] = (16 * 1024, 64 * 1024, 128 * 1024)
    number_bits: int = 16
    threads: int = 512
    least_slice: int = 16 * 1024
    any_kernel: bool = False
    staging_bytes: int = 32 << 20
    native: bool = True
    always_stage: bool = False
    stages_host: bool = False
    hand_ring: bool = False
    multicast: bool = True
    fused: bool = False


def emulated(
    protocol: str = "",
    *,
    blocks: int = 4,
    depth: int = 2,
    threads: int = 32,
    any_kernel: bool = False,
    native: bool = False,
    always_stage: bool = False,
    stages_host: bool = False,
    multicast: bool = False,
    fused: bool = False,
) -> Options:
    """A small device: few threads and small slots, so that little data pass through every part of a protocol many times."""
    return Options(
        emulated=True,
        protocol=protocol,
        blocks=blocks,
        depth=depth,
        slot_bytes=(4096, 32768, 4096),
        number_bits=4,
        threads=threads,
        least_slice=128,
        any_kernel=any_kernel,
        staging_bytes=4096,
        native=native,
        always_stage=always_stage,
        stages_host=stages_host,
        multicast=multicast,
        fused=fused,
    )
