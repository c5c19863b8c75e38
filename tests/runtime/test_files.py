import errno
import os
from pathlib import Path, PurePath
from stat import S_ISREG
from threading import Timer

import pytest

from drumbeat.runtime.files import MAX_FILE, FileFault, read_inside, remedy_for


def fault(folder: Path, name: str) -> FileFault:
    with pytest.raises(FileFault) as caught:
        read_inside(folder, PurePath(name))
    assert str(caught.value)
    return caught.value


def test_the_bytes_come_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.md").write_bytes(b"\xff\r\n")
    assert read_inside(tmp_path, PurePath("a/b.md")) == b"\xff\r\n"


def test_no_more_is_read_than_shows_that_it_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_FILE * 1000)
    assert len(read_inside(tmp_path, PurePath("huge"))) == MAX_FILE + 1


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert read_inside(tmp_path, PurePath("link")) == b"x"


def test_a_folder_that_is_itself_a_link_is_inside_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("x")
    (tmp_path / "w").symlink_to("real")
    assert read_inside(tmp_path / "w", PurePath("f")) == b"x"


@pytest.mark.parametrize("name", ["/etc/hostname", "../f", "a/../../f", "a/../f", ".."])
def test_paths_out_of_the_folder_are_refused_unseen(name: str, tmp_path: Path) -> None:
    assert fault(tmp_path, name).kind == "outside"


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    (outside / "secret").write_text("x")
    (inside / "file").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    assert fault(inside, "file").kind == "outside"
    assert fault(inside, "folder/secret").kind == "outside"
    assert str(outside / "secret") in str(fault(inside, "file"))


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe that nobody writes to would hold up its reader for ever."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert fault(tmp_path, "folder").kind == "not-a-file"
    assert fault(tmp_path, "pipe").kind == "not-a-file"
    assert fault(tmp_path, "").kind == "not-a-file"


@pytest.mark.parametrize("kind", ["missing", "not-a-file", "unreadable"])
def test_what_takes_the_place_of_a_file_is_not_waited_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and its opening it may go away, or become a pipe or a link."""
    path = tmp_path / "file"
    path.write_text("x")
    looked = Path.stat

    def look(self: Path, **given: bool) -> os.stat_result:
        found = looked(self, **given)
        if self == path and S_ISREG(found.st_mode):
            path.unlink()
            if kind == "not-a-file":
                os.mkfifo(path)
            elif kind == "unreadable":
                path.symlink_to("/etc/hostname")
        return found

    def let_go() -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    # Whoever waits for a writer gets one, and has read what is no file.
    patience = Timer(5, let_go)
    patience.start()
    monkeypatch.setattr(Path, "stat", look)
    try:
        assert fault(tmp_path, "file").kind == kind
    finally:
        patience.cancel()


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("gone", "gone/deeper", "file/below", "dangling"):
        assert fault(tmp_path, name).kind == "missing"


def test_what_the_system_refuses_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("loop", "x" * 5000, "a\0b"):
        assert fault(tmp_path, name).kind == "unreadable"

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(os, "open", refuse)  # the superuser may read everything
    assert "Permission denied" in str(fault(tmp_path, "file"))


@pytest.mark.parametrize(
    "number, said",
    [
        (errno.ENOSPC, "df -i"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "for writing"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENAMETOOLONG, "shorter"),
        (errno.EACCES, "let it be written"),
    ],
)
def test_a_disk_or_a_limit_has_a_remedy_of_its_own(number: int, said: str) -> None:
    assert said in remedy_for(OSError(number, "no"), "let it be written")
    assert remedy_for(OSError("no number"), "let it be written") == "let it be written"
