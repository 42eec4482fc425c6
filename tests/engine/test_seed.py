from mooring.engine.seed import seed_of


def test_the_same_pod_attempt_and_salt_give_the_same_seed() -> None:
    assert seed_of("uid", 1, 7) == seed_of("uid", 1, 7)


def test_another_pod_attempt_or_salt_gives_another() -> None:
    assert len({seed_of("a", 1), seed_of("b", 1), seed_of("a", 2), seed_of("a", 1, 1)}) == 4


def test_seeds_spread_evenly_over_a_few_equals() -> None:
    chosen = [seed_of(f"uid-{i}", 1) % 4 for i in range(4000)]
    assert all(900 < chosen.count(k) < 1100 for k in range(4))
