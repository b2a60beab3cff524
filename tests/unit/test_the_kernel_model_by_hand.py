# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of the kernel's model against sequences worked out by hand from its source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootpress.simulate import OpenFile, PageCache, RoundRobinCache, measure_seeks

PAGE = 4096


# --- seeks ------------------------------------------------------------------------------------


def test_nothing_read_seeks_nowhere() -> None:
    assert measure_seeks([]) == (0, 0)


def test_reads_that_follow_each_other_from_the_start_seek_nowhere() -> None:
    assert measure_seeks([(0, 10), (10, 5), (15, 1)]) == (0, 0)


@pytest.mark.parametrize(
    ("reads", "jumps", "distance"),
    [
        ([(100, 10)], 1, 100),  # the head starts at 0
        ([(0, 10), (20, 10)], 1, 10),  # forward over a gap of 10
        ([(0, 10), (0, 10)], 1, 10),  # back to where it began
        ([(0, 10), (20, 10), (30, 10), (10, 10)], 2, 10 + 30),
        ([(0, 10), (5, 10)], 1, 5),  # an overlap is a way back
    ],
)
def test_a_jump_is_counted_with_its_distance(
    reads: list[tuple[int, int]], jumps: int, distance: int
) -> None:
    assert measure_seeks(reads) == (jumps, distance)


# --- the metadata cache --------------------------------------------------------------------------


def test_slots_are_given_out_in_turn_however_recently_they_were_used() -> None:
    cache = RoundRobinCache(3)
    # Three misses fill it. 1 is used again, which saves it in an LRU cache and not here: 4 takes
    # its slot. So 1 misses and takes the slot of 2; 3 is still there; 2 misses, takes that of 3.
    told = [(key, cache.get(key)) for key in (1, 2, 3, 1, 4, 1, 3, 2, 3)]
    assert told == [
        (1, False),
        (2, False),
        (3, False),
        (1, True),
        (4, False),
        (1, False),
        (3, True),
        (2, False),
        (3, False),
    ]


def test_one_more_unit_than_there_are_slots_misses_every_time_round() -> None:
    cache = RoundRobinCache(8)
    assert not any(cache.get(key) for _ in range(5) for key in range(9))


def test_as_many_units_as_slots_miss_once_each() -> None:
    cache = RoundRobinCache(8)
    assert sum(not cache.get(key) for _ in range(5) for key in range(8)) == 8


# --- read-ahead -----------------------------------------------------------------------------------


class _Disk:
    def __init__(self, pages: int) -> None:
        self.runs: list[tuple[int, int]] = []
        self.cache = PageCache(pages, self._submit)
        self.file = OpenFile(self.cache)

    def _submit(self, page: int, count: int) -> None:
        self.runs.append((page, count))

    def read(self, *pages: int) -> list[tuple[int, int]]:
        """Read whole pages one by one; return what the disk read for them."""
        before = len(self.runs)
        for page in pages:
            self.file.read(page * PAGE, PAGE)
        return self.runs[before:]


def test_a_page_somewhere_is_read_alone() -> None:
    disk = _Disk(1000)
    assert disk.read(500) == [(500, 1)]
    assert disk.read(200) == [(200, 1)]


def test_the_first_page_of_the_file_opens_a_window_of_four() -> None:
    # get_init_ra_size(1, 32): 1 <= 32 / 32, so 4 pages, 3 of them ahead.
    assert _Disk(1000).read(0) == [(0, 4)]


def test_a_sequential_reader_gets_windows_of_4_8_16_and_32_pages() -> None:
    disk = _Disk(1000)
    assert disk.read(10) == [(10, 1)]
    # The next page: a window of 4 with its marker on the second, 12.
    assert disk.read(11) == [(11, 4)]
    assert disk.read(12) == [(15, 8)]  # the marker: the next window, twice as large; marker on 15
    assert disk.read(13, 14) == []
    assert disk.read(15) == [(23, 16)]
    assert disk.read(*range(16, 23)) == []
    assert disk.read(23) == [(39, 32)]
    assert disk.read(*range(24, 39)) == []
    assert disk.read(39) == [(71, 32)]  # no larger than 128 KiB


def test_a_part_of_the_next_page_counts_as_sequential() -> None:
    disk = _Disk(1000)
    disk.file.read(10 * PAGE, 1024)
    assert disk.read(11) == [(10, 1), (11, 4)][1:]


def test_what_is_cached_is_left_out_and_splits_a_window() -> None:
    disk = _Disk(1000)
    assert disk.read(13) == [(13, 1)]
    assert disk.read(10) == [(10, 1)]
    assert disk.read(11) == [(11, 2), (14, 1)]


def test_pages_cached_ahead_of_a_jump_are_taken_for_half_a_stream() -> None:
    disk = _Disk(1000)
    disk.read(100, 101)  # 100, then 101 to 104 with a marker on 102
    disk.read(500)
    # 105 misses; it is where the window ended, so it is taken for the stream's next step. The
    # window opens twice as large, and its own marker adds the one after at once.
    assert disk.read(105) == [(105, 24)]


def test_history_without_a_window_of_its_own_sizes_the_next() -> None:
    disk = _Disk(1000)
    disk.read(40, 41)  # 40; 41 to 44
    disk.read(700, 701)  # the state now is about 701 to 704
    # 45: five pages lie ahead of it in the cache, so 5 + 1, the last one ahead.
    assert disk.read(45) == [(45, 6)]


def test_nothing_is_read_past_the_end() -> None:
    disk = _Disk(12)
    assert disk.read(9, 10) == [(9, 1), (10, 2)]
    assert disk.read(11) == []


def test_a_large_request_is_read_at_once_and_half_as_much_is_not_added() -> None:
    disk = _Disk(1000)
    # 64 pages exceed the window of 32, so the window is as large as the request.
    disk.file.read(100 * PAGE, 64 * PAGE)
    assert disk.runs == [(100, 64)]


def test_two_open_files_share_the_cache_and_not_the_window() -> None:
    disk = _Disk(1000)
    disk.read(0)  # 0 to 3, the marker on 1
    other = OpenFile(disk.cache)
    # Its window knows nothing of the marker: 1, and 2 and 3 behind it are cached, so it goes on at
    # 4, with 3 pages of history and 1 that is wanted, doubled.
    other.read(1 * PAGE, PAGE)
    assert disk.runs == [(0, 4), (4, 8)]


@given(st.lists(st.integers(0, 199), max_size=200))
def test_no_page_is_ever_read_twice_and_none_that_is_wanted_is_left_out(pages: list[int]) -> None:
    disk = _Disk(200)
    disk.read(*pages)
    read = [page for first, count in disk.runs for page in range(first, first + count)]
    assert len(read) == len(set(read))
    assert set(pages) <= set(read) <= set(range(200))
