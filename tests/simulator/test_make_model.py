import os

import pytest

from moetuned.simulator.make_model import main, make_parser, shape_from_arguments


def test_it_writes_a_file_of_the_size_and_says_what_it_costs(tmp_path, capsys):
    path = tmp_path / "m.gguf"
    assert main([str(path), "--size", "12M"]) == 0
    assert abs(os.path.getsize(path) - (12 << 20)) <= 0.03 * (12 << 20)
    shown = capsys.readouterr()
    assert "bytes a token" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--size", "big"], "is no size"),
        (["--size", "1M"], "--size"),
        (["--size", "1G", "--heads-kv", "5"], "heads-kv"),
        (["--used", "0"], "experts_used"),
        (["--siz", "1G"], "--siz"),
    ],
)
def test_wrong_usage_is_2_and_says_what(tmp_path, capsys, arguments, text):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "m.gguf"), *arguments])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_not_there_is_1(tmp_path, capsys):
    assert main([str(tmp_path / "none" / "m.gguf"), "--size", "12M"]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_dimensions_that_are_given_are_taken():
    arguments = make_parser().parse_args(
        ["out", "--layers", "3", "--experts", "9", "--used", "2", "--embd", "128", "--ff", "64", "--key-length", "32"]
    )
    shape = shape_from_arguments(arguments)
    assert (shape.layers, shape.experts, shape.experts_used) == (3, 9, 2)
    assert (shape.embedding, shape.feed_forward, shape.key_length) == (128, 64, 32)


def test_help_says_what_a_token_of_context_costs(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "17 KiB a token" in capsys.readouterr().out
