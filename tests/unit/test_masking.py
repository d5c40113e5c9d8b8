"""Credentials in command lines."""

from __future__ import annotations

import pytest

from builddoctor.trace.masking import MASK, mask_argv


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
