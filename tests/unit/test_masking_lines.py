"""Credentials in lines of logs; that `explain` shows none is in test_explain_secrets."""

from __future__ import annotations

import pytest

from builddoctor.trace.masking import MASK
from builddoctor.trace.masking_lines import mask_line


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
