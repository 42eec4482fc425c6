"""Lines out of chunks."""

from hypothesis import given
from hypothesis import strategies as st

from mooring.kube.lines import LineSplitter


@given(st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"x", b"\n"))))
def test_lines_do_not_depend_on_where_the_stream_is_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    finished = b"".join(chunks).split(b"\n")[:-1]
    assert lines == [line for line in finished if line]


def test_a_line_is_held_back_until_it_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a"') == []
    assert splitter.feed(b":1") == []
    assert splitter.feed(b'}\n{"b"') == [b'{"a":1}']
    assert splitter.feed(b":2}\n") == [b'{"b":2}']
