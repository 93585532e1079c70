"""Files that have their name only once they are whole."""

import pytest

from parity.whole_file import whole_file


def test_a_file_has_its_name_only_once_it_is_whole(tmp_path):
    path = tmp_path / "report.jsonl"
    with whole_file(path) as stream:
        stream.write(b"one\n")
        stream.flush()
        assert not path.exists()
    assert path.read_text() == "one\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_file_that_was_there_survives_an_interrupt(tmp_path, error):
    path = tmp_path / "report.jsonl"
    path.write_text("old\n")

    def interrupted():
        with whole_file(path) as stream:
            stream.write(b"new\n")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    with whole_file(link) as stream:
        stream.write(b"one\n")
    assert link.is_symlink()
    assert target.read_text() == "one\n"


def test_a_file_may_have_the_longest_name(tmp_path):
    path = tmp_path / ("r" * 255)
    with whole_file(path) as stream:
        stream.write(b"one\n")
    assert path.read_text() == "one\n"
