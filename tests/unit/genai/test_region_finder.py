"""Regions of speech from probabilities. Steps are 512 samples at 16 kHz: 0.25 s are 7.8 steps, 0.1 s are 3.1."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from genai import SpeechRegion, SpeechRegionOptions
from genai.region_finder import RegionFinder

PLAIN = SpeechRegionOptions(min_speech=0, min_silence=0, padding=0)


def found(
    probabilities: list[float], options: SpeechRegionOptions | None = None, length: int | None = None
) -> list[Any]:
    """The regions as (start, end), pushed one step at a time."""
    finder = RegionFinder(options)
    regions = [region for probability in probabilities for region in finder.push([probability])]
    regions += finder.finish(512 * len(probabilities) if length is None else length)
    return [(region.start, region.end) for region in regions]


def worked_out(probabilities: list[float], options: SpeechRegionOptions) -> list[tuple[int, int]]:
    """The same by going back over the whole sound: speech and pauses first, then what is too short, then padding."""
    count, release = len(probabilities), options.threshold - 0.15
    spoken: list[list[int]] = []
    index = 0
    while index < count:
        if probabilities[index] < options.threshold:
            index += 1
            continue
        start = index
        end = count * 512
        while index < count:
            if probabilities[index] < release:
                pause = index
                while index < count and probabilities[index] < options.threshold:
                    is_low = probabilities[index] < release
                    if is_low and 512 * (index - pause) >= 16000 * options.min_silence:
                        break
                    index += 1
                if index < count and probabilities[index] < options.threshold:
                    end = pause * 512
                    break
            else:
                index += 1
        spoken.append([start * 512, end])
    kept = [region for region in spoken if region[1] - region[0] > 16000 * options.min_speech]
    padding = round(16000 * options.padding)
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(kept)]
    lefts = [padding, *[min(padding, gap // 2) for gap in gaps]]
    rights = [*lefts[1:], padding]
    return [
        (max(0, start - left), min(512 * count, end + right))
        for (start, end), left, right in zip(kept, lefts, rights, strict=True)
    ]


def test_silence_has_no_region() -> None:
    assert found([0.0] * 50) == []


def test_no_sound_has_no_region() -> None:
    assert found([]) == []


def test_speech_is_padded_at_both_sides() -> None:
    assert found([0.0] * 10 + [0.9] * 10 + [0.0] * 10) == [(10 * 512 - 480, 20 * 512 + 480)]


def test_padding_stays_inside_the_sound() -> None:
    assert found([0.9] * 10, length=10 * 512 - 100) == [(0, 10 * 512 - 100)]


def test_speech_at_the_end_of_the_last_step_ends_with_the_sound() -> None:
    assert found([0.9] * 10 + [0.0] * 5, length=14 * 512 + 1) == [(0, 10 * 512 + 480)]


def test_a_pause_that_is_not_over_belongs_to_the_speech_at_the_end() -> None:
    assert found([0.9] * 10 + [0.0] * 2) == [(0, 12 * 512)]


@pytest.mark.parametrize(("steps", "expected"), [(7, []), (8, [(0, 8 * 512)])])
def test_speech_must_be_longer_than_the_minimum(steps: int, expected: list[tuple[int, int]]) -> None:
    assert found([0.9] * steps + [0.0] * 9, SpeechRegionOptions(padding=0)) == expected


@pytest.mark.parametrize(("steps", "count"), [(4, 1), (5, 2)])
def test_a_pause_of_the_minimum_separates(steps: int, count: int) -> None:
    assert len(found([0.9] * 10 + [0.0] * steps + [0.9] * 10)) == count


def test_between_the_thresholds_speech_goes_on_but_does_not_begin() -> None:
    assert found([0.4] * 3 + [0.5] + [0.4] * 3 + [0.3], PLAIN) == [(3 * 512, 7 * 512)]


def test_a_pause_ends_speech_in_a_step_that_is_surely_none() -> None:
    doubtful = [0.9] * 10 + [0.1] + [0.4] * 20
    assert found([*doubtful, *[0.9] * 10], SpeechRegionOptions(padding=0)) == [(0, 41 * 512)]
    assert found([*doubtful, 0.1, *[0.9] * 10], SpeechRegionOptions(padding=0)) == [(0, 5120), (32 * 512, 42 * 512)]


def test_the_release_threshold_can_be_chosen() -> None:
    options = SpeechRegionOptions(0.9, 0.1, min_speech=0, min_silence=0, padding=0)
    assert found([0.8, 0.9, 0.1, 0.05], options) == [(512, 3 * 512)]


def test_near_regions_share_the_pause_between_them() -> None:
    options = SpeechRegionOptions(min_speech=0, min_silence=0, padding=0.05)
    assert found([0.9, 0.0, 0.9], options) == [(0, 512 + 256), (2 * 512 - 256, 3 * 512)]


def test_what_was_too_short_takes_no_padding_away() -> None:
    options = SpeechRegionOptions(min_speech=0.04, min_silence=0, padding=0.05)
    assert found([0.9, 0.9, 0.0, 0.9, 0.0, 0.0, 0.0], options) == [(0, 2 * 512 + 800)]


def test_a_region_is_told_as_soon_as_it_is_certain() -> None:
    finder = RegionFinder()
    assert finder.push([0.9] * 10 + [0.0] * 4) == []
    assert finder.push([0.0]) == [SpeechRegion(0, 10 * 512 + 480)]


def test_a_region_is_told_once_the_next_is_sure_to_be_one() -> None:
    options = SpeechRegionOptions(min_speech=0.05, min_silence=0.03, padding=0.2)  # 1.6 steps, 1 step, 3200 samples
    finder = RegionFinder(options)
    assert finder.push([0.9] * 10 + [0.0] * 4 + [0.9] * 2) == []  # the last step may reach beyond the sound
    assert finder.push([0.9]) == [SpeechRegion(0, 12 * 512)]
    assert finder.undecided_from == 12 * 512
    assert finder.finish(17 * 512) == [SpeechRegion(12 * 512, 17 * 512)]


def test_what_is_decided_can_be_forgotten() -> None:
    finder = RegionFinder()
    finder.push([0.0] * 10)
    assert finder.undecided_from == 9 * 512 - 480
    finder.push([0.9] * 10)
    assert finder.undecided_from == 10 * 512 - 480
    finder.push([0.0] * 10)
    assert finder.undecided_from == 29 * 512 - 480


@pytest.mark.parametrize("seed", range(30))
def test_step_by_step_it_is_what_the_whole_sound_gives(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rough = np.repeat(generator.uniform(0, 1, 60), generator.integers(1, 12, 60))
    probabilities = np.clip(rough + generator.normal(0, 0.1, rough.size), 0, 1).tolist()
    options = SpeechRegionOptions(
        min_speech=generator.uniform(0, 0.4), min_silence=generator.uniform(0, 0.3), padding=generator.uniform(0, 0.2)
    )
    expected = worked_out(probabilities, options)
    assert len(expected) > 1
    assert found(probabilities, options) == expected


class TestLongSpeech:
    def test_it_is_split_at_its_longest_pause(self) -> None:
        options = SpeechRegionOptions(min_silence=1, padding=0, max_speech=2)
        probabilities = [0.9] * 20 + [0.0] * 5 + [0.9] * 10 + [0.0] * 4 + [0.9] * 40
        assert found(probabilities, options) == [(0, 20 * 512), (25 * 512, 79 * 512)]

    def test_a_pause_after_the_split_counts_for_the_next(self) -> None:
        options = SpeechRegionOptions(min_silence=1, padding=0, max_speech=2)
        probabilities = [0.9] * 20 + [0.0] * 5 + [0.9] * 10 + [0.0] * 4 + [0.9] * 60
        assert found(probabilities, options) == [(0, 20 * 512), (25 * 512, 35 * 512), (39 * 512, 99 * 512)]

    def test_without_a_pause_it_is_cut(self) -> None:
        options = SpeechRegionOptions(padding=0, max_speech=1)
        assert found([0.9] * 70, options) == [(0, 31 * 512), (31 * 512, 62 * 512), (62 * 512, 70 * 512)]

    def test_its_first_part_is_told_while_speech_goes_on(self) -> None:
        finder = RegionFinder(SpeechRegionOptions(min_speech=0.05, padding=0.05, max_speech=1.1))
        assert finder.push([0.9] * 33) == []
        assert finder.push([0.9]) == [SpeechRegion(0, 31 * 512)]

    def test_with_its_padding_it_is_not_longer(self) -> None:
        options = SpeechRegionOptions(padding=0.1, max_speech=1.2)
        generator = np.random.default_rng(5)
        regions = found(np.repeat(generator.choice([0.1, 0.9], 200, p=[0.3, 0.7]), 3).tolist(), options)
        assert len(regions) > 10
        assert max(end - start for start, end in regions) <= 1.2 * 16000

    def test_a_pause_at_the_limit_ends_it(self) -> None:
        options = SpeechRegionOptions(min_silence=1, padding=0, max_speech=1)
        assert found([0.9] * 25 + [0.0] * 20 + [0.9] * 10, options) == [(0, 25 * 512), (45 * 512, 55 * 512)]


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0},
        {"threshold": 1.1},
        {"threshold": float("nan")},
        {"release_threshold": 0.6},
        {"release_threshold": 0},
        {"min_speech": -1},
        {"min_silence": float("nan")},
        {"padding": float("inf")},
        {"max_speech": 0.5},
        {"max_speech": 1.5, "padding": 0.5},
    ],
)
def test_options_that_cannot_be(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        SpeechRegionOptions(**options)


def test_a_region_tells_its_times() -> None:
    region = SpeechRegion(8000, 40000)
    assert (region.start_time, region.end_time) == (0.5, 2.5)


@pytest.mark.parametrize(
    "name", ["threshold", "release_threshold", "min_speech", "min_silence", "padding", "max_speech"]
)
def test_a_bool_is_no_number(name: str) -> None:
    given: dict[str, Any] = {name: True}
    with pytest.raises(TypeError, match=f"{name} must be a number, not bool"):
        SpeechRegionOptions(**given)
