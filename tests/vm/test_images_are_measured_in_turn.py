# SPDX-License-Identifier: GPL-2.0-or-later
"""Measuring: what the same boots cost from two images, on a medium with a stated speed."""

from dataclasses import replace
from pathlib import Path

import pytest

from bootpress import PackOptions, pack
from bootpress.measure import measure_boots
from bootpress.profile import NO_MEDIUM
from bootpress.record import BootOptions

pytestmark = pytest.mark.vm

# Slow enough to rule the boot, fast enough for a test.
SLOW = replace(NO_MEDIUM, name="slow", bandwidth=2e6)


def test_more_bytes_take_longer_on_a_slow_medium(
    bootable: Path, plain: Path, tmp_path: Path
) -> None:
    large = tmp_path / "large.squashfs"
    pack(bootable, large, options=PackOptions(codec="none"))
    told: list[tuple[int, int]] = []
    small_one, large_one = measure_boots(
        [plain, large],
        options=BootOptions(medium=SLOW, timeout=300),
        runs=1,
        monitor=lambda stage, done, total, boots, of: told.append((boots, of)),
    )
    assert (small_one.image, large_one.image) == (str(plain), str(large))
    assert len(small_one.boots) == len(large_one.boots) == 1
    (less,), (more,) = small_one.boots, large_one.boots
    assert more.bytes_read > 1.5 * less.bytes_read
    for boot in (less, more):
        # The throttle lets a tenth of a second's worth through at once.
        assert boot.seconds > boot.bytes_read / SLOW.bandwidth * 0.9
        assert 0 < boot.jumps <= boot.reads
        assert boot.seek_bytes > 0
        assert boot.cpu_seconds > 0
    assert small_one.medium == "slow"
    assert small_one.spread(lambda boot: boot.seconds).median == less.seconds
    assert {of for _, of in told} == {2}
    assert [boots for boots, _ in told] == sorted(boots for boots, _ in told)
