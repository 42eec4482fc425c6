import pytest

from mooring.cel.formats import FORMATS, mistakes_of


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("dns1123Label", "a-1", "A"),
        ("dns1123Label", "a", "a.b"),
        ("dns1123Subdomain", "a.b", "-a"),
        ("dns1035Label", "a1", "1a"),
        ("dns1123LabelPrefix", "a-", "-"),
        ("qualifiedName", "example.com/a", "a/b/c"),
        ("labelValue", "", "-"),
        ("uri", "/a", "a"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("byte", "YWI=", "!"),
        ("byte", "YWI=", ""),
        ("byte", "YWI=", "YWAI="),
        ("date", "2024-02-29", "2023-02-29"),
        ("datetime", "2024-02-29T00:00:00Z", "2024-02-29"),
        ("datetime", "2024-02-29t00:00:00.5-99:99", "2024-02-29T1:00:00Z"),
        ("datetime", "2024-02-29T23:59:59z", "2024-02-29 23:59:59z"),
    ],
)
def test_a_format_accepts_what_has_it(name: str, right: str, wrong: str) -> None:
    assert mistakes_of(FORMATS[name], right) == []
    assert mistakes_of(FORMATS[name], wrong) != []
