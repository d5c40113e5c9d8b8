"""Credentials in arguments, in free text and in lines of logs; `explain` is tested in test_explain_secrets."""

from __future__ import annotations

import pytest

from builddoctor.trace.masking import MASK, mask_argv, mask_line, mask_text


@pytest.mark.parametrize(
    ("argument", "masked"),
    [
        ("--token=hunter2", "--token=****"),
        ("--api-key=hunter2", "--api-key=****"),
        ("-DAPI_KEY=hunter2", "-DAPI_KEY=****"),
        ("GITHUB_TOKEN=hunter2", "GITHUB_TOKEN=****"),
        ("PIP_PASSWORD: hunter2", "PIP_PASSWORD: ****"),
        ("AWS_SECRET_ACCESS_KEY=hunter2", "AWS_SECRET_ACCESS_KEY=****"),
        ("https://user:hunter2@pypi.example/simple", "https://****@pypi.example/simple"),
        ("git+https://hunter2@github.com/a/b.git", "git+https://****@github.com/a/b.git"),
        ("https://x.example/get?token=hunter2&b=1", "https://x.example/get?token=****&b=1"),
        ("https://x.example/get?a=1&auth_token=hunter2", "https://x.example/get?a=1&auth_token=****"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays(argument: str, masked: str) -> None:
    """Names, addresses and other parameters stay readable."""
    assert mask_argv(["pip", argument, "wheel"]) == ["pip", masked, "wheel"]


@pytest.mark.parametrize("flag", ["--token", "--password", "--client-secret", "--api-key", "-passwd", "--PASSWORD"])
def test_the_word_after_a_secret_flag_is_masked(flag: str) -> None:
    """The value may be an argument of its own."""
    assert mask_argv([flag, "hunter2", "wheel"]) == [flag, MASK, "wheel"]


def test_a_flag_after_a_secret_flag_is_no_secret() -> None:
    """A flag without a value hides nothing else."""
    assert mask_argv(["--token", "--verbose", "x"]) == ["--token", "--verbose", "x"]


@pytest.mark.parametrize(
    "secret", ["pass word", "semi;colon", "comma,comma", "amper&sand", "one two;three,four&five", "tab\tbed"]
)
def test_a_secret_that_is_a_whole_argument_is_masked_to_its_end(secret: str) -> None:
    """Passwords hold blanks, commas and ampersands; no part of one is left."""
    (masked,) = mask_argv([f"--password={secret}"])
    assert masked == "--password=****"


def test_a_password_with_an_at_sign_is_masked_to_its_end() -> None:
    """The host begins after the last at sign."""
    assert mask_argv(["https://me:p@ss@host/x"]) == ["https://****@host/x"]


@pytest.mark.parametrize(
    "argument",
    ["ninja", "-j8", "-DCMAKE_BUILD_TYPE=Release", "src/tokenizer.cu", "-Iinclude/auth", "https://host/x@2", "", "a=b"],
)
def test_ordinary_arguments_are_left_alone(argument: str) -> None:
    """Nothing else is changed."""
    assert mask_argv([argument]) == [argument]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            "fatal: clone of 'https://me:hunter2@git.example/a/b.git' into submodule path '/p/b' failed",
            "fatal: clone of 'https://****@git.example/a/b.git' into submodule path '/p/b' failed",
        ),
        ("x https://hunter2@h/a y\tssh://u:p@ss@h", "x https://****@h/a y\tssh://****@h"),
        ("get https://h/x?a=1&access_token=hunter2&b=2 failed", "get https://h/x?a=1&access_token=****&b=2 failed"),
        ("https://h/x?API-KEY=hunter2", "https://h/x?API-KEY=****"),
        ("https://u:one@h/a,https://u:two@h/b", "https://****@h/a,https://****@h/b"),
    ],
)
def test_addresses_in_free_text_are_masked(text: str, masked: str) -> None:
    """Every one of a line; what stands around it stays, blanks and all."""
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "git@github.com:a/b.git",
        "https://host/x@2",
        "see https://h/a: mail a@b.org",
        "token=x",
        "a?b=c",
        "://",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """An at sign alone makes no address."""
    assert mask_text(text) == text


@pytest.mark.parametrize("piece", ["a", "://", "@", "a://", "?token=", "&", "a@://", "://a?&=", " ", "-_"])
def test_long_text_of_a_stranger_takes_no_longer_than_its_length(piece: str) -> None:
    """Two megabytes of anything come to an end (a search that goes back would take hours)."""
    text = piece * (2_000_000 // len(piece))
    assert "hunter2" not in mask_text(f"{text} https://me:hunter2@host/x")


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("password: hunter2", "password: ****"),
        ("{'token': 'hunter2'}", "{'token': '****'}"),
        ('{"api_key":"hunter2","n":1}', '{"api_key":"****","n":1}'),
        ("AUTH=hunter2 make", "AUTH=**** make"),
        ("Authorization: Bearer hunter2", "Authorization: ****"),
        ("twine upload --password hunter2 dist/*", "twine upload --password **** dist/*"),
        ("machine h login u password hunter2", "machine h login u password ****"),
        ("get https://u:hunter2@h.example/x failed", "get https://****@h.example/x failed"),
    ],
)
def test_the_value_is_masked_and_its_name_stays(line: str, masked: str) -> None:
    """Forms that tools print; what is around it can still be read."""
    assert mask_line(line) == masked


@pytest.mark.parametrize(
    "line",
    [
        "nvcc -DTOKENS_PER_BLOCK=128 -c csrc/token_dispatch.cu -o x.o",
        "csrc/password.cpp:12:3: error: 'auth' was not declared in this scope",
        "x.cpp: In function 'void secret': error: no",
        "src/token:12: error: expected token : ;",
        "undefined reference to `get_token(int)'",
        "authors = three",
        "-I/opt/auth/include -L/opt/secret/lib",
        "use_auth_token=False",
        "FAILED: release/bin/glib-compile-resources.exe gtk.gresources.xml",
        "",
    ],
)
def test_what_compilers_print_stays(line: str) -> None:
    """Files, functions and settings that are only called like secrets."""
    assert mask_line(line) == line


def test_a_line_of_a_private_key_is_masked_whole() -> None:
    """64 letters of base64 and nothing else."""
    assert mask_line("MIIEvQIBADANBgkq" * 4) == MASK


def test_masked_again_it_is_the_same() -> None:
    """A masked line can be masked once more where it is shown."""
    line = mask_line(
        "--token hunter2 https://u:p@h.example/x?sig=abc password=hunter2 Authorization: Basic aHVudGVyMg=="
    )
    assert mask_line(line) == line
    assert "hunter2" not in line
