"""What looks like a credential in a log is never shown again: neither in the verdict nor on the screen.

The credentials are put together here and never stand in a file: none of them is one, and scanners need not be asked.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.app import main
from support.told import explain

LETTERS = "EXAMPLEexample1234"
GITHUB = "gh" + "p_" + LETTERS * 2
GITHUB_FINE = "github" + "_pat_" + LETTERS * 3
GITLAB = "gl" + "pat-" + LETTERS + "ab"
HUGGING_FACE = "h" + "f_" + LETTERS * 2
PYPI = "py" + "pi-AgEIcHlwaS5vcmc" + LETTERS * 3
AWS_ID = "AK" + "IAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
SLACK = "xo" + "xb-1234567890-" + LETTERS
WANDB = "0123456789abcdef" + "0123456789abcdef01234567"
JWT = "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiJleGFtcGxlIn0." + LETTERS * 2
PASSWORD = "correct-horse-battery"

SECRETS = {
    "clone with a token": (
        f"fatal: unable to access 'https://x-access-token:{GITHUB}@git.example/k.git/': 403",
        GITHUB,
    ),
    "fine-grained token": (f"remote: error: Invalid token {GITHUB_FINE} for https://git.example/k.git", GITHUB_FINE),
    "GitLab's token in an address": (
        f"fatal: Authentication failed for 'https://oauth2:{GITLAB}@git.example/k.git/'",
        GITLAB,
    ),
    "pip index": (f"ERROR: Could not find a version: https://ci:{PASSWORD}@index.example/simple/k/", PASSWORD),
    "pip index, user part alone": (f"error: no such index https://{PYPI}@index.example/simple", PYPI),
    "environment of a command": (
        f"FAILED: k.o\nHF_TOKEN={HUGGING_FACE} /usr/local/cuda/bin/nvcc -c k.cu",
        HUGGING_FACE,
    ),
    "export": (f"+ export AWS_SECRET_ACCESS_KEY={AWS_SECRET}\nerror: exit status 1", AWS_SECRET),
    "AWS pair": (f"error: credentials {AWS_ID} {AWS_SECRET} refused", AWS_SECRET),
    "AWS key id": (f"error: An error occurred (InvalidAccessKeyId): {AWS_ID}", AWS_ID),
    "bearer": (f"error: request failed, Authorization: Bearer {JWT}", JWT),
    "basic": (f"curl: (22) error 401 -H 'Authorization: Basic {LETTERS}=='", LETTERS),
    "flag and value": (f"error: command failed: twine upload --password {PASSWORD} dist/k.whl", PASSWORD),
    "flag with equals": (f"fatal error: mirror --api-key={PASSWORD} failed", PASSWORD),
    "header of an API": (f"error: X-Api-Key: {WANDB} rejected", WANDB),
    "JSON": (f'error: {{"api_key": "{PASSWORD}", "status": 403}}', PASSWORD),
    "Slack": (f"error: notify failed for {SLACK}", SLACK),
    "bare Hugging Face token": (f"error: {HUGGING_FACE} is not allowed to read this", HUGGING_FACE),
    "bare GitHub token": (f"error: bad credentials: {GITHUB}", GITHUB),
    "signed address": (f"error: GET https://store.example/k?X-Amz-Signature={WANDB}&x=1 failed", WANDB),
    "docker build argument": (
        f'ERROR: process "/bin/sh -c pip install -i https://u:{PASSWORD}@index.example/ k" did not complete',
        PASSWORD,
    ),
    "netrc": (f"error: machine git.example login ci password {PASSWORD}", PASSWORD),
    "define on the command line": (f"FAILED: k.o\nnvcc -DLICENSE_TOKEN={PASSWORD} -c k.cu -o k.o", PASSWORD),
    "address of a unit": (f"nvcc fatal   : no input file 'https://a:{PASSWORD}@files.example/k.cu'", PASSWORD),
}

AROUND = {
    "killed": "FAILED: k.o\n{line}\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
    "unknown": "[1/2] Building CUDA object k.o\n{line}\nninja: build stopped: subcommand failed.\n",
    "at the end": "make: *** [Makefile:3: k.o] Error 1\n{line}",
    "GPU": "{line}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n{line}\n",
    "with colours": "\x1b[31m{line}\x1b[0m\nninja: build stopped: subcommand failed.\n",
}


@pytest.mark.parametrize("around", list(AROUND))
@pytest.mark.parametrize("what", list(SECRETS))
def test_no_verdict_repeats_a_credential(what: str, around: str) -> None:
    """Wherever it stands, also on the very line that matters: nothing of the verdict has it in it."""
    line, secret = SECRETS[what]
    said = explain([AROUND[around].format(line=line).encode()])
    assert secret not in msgspec.json.encode(said).decode()


@pytest.mark.parametrize("what", list(SECRETS))
def test_the_command_prints_no_credential(tmp_path: Path, what: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`explain FILE` and `explain FILE --json`, with a log whose cause is unknown: it shows most lines then."""
    line, secret = SECRETS[what]
    log = tmp_path / "build.log"
    log.write_text(AROUND["unknown"].format(line=line))
    for options in ([], ["--json"]):
        assert main(["explain", str(log), *options]) == 0
        shown = "".join(capfd.readouterr())
        assert shown
        assert secret not in shown


def test_the_line_itself_is_shown() -> None:
    """Masked, not left out: what failed can still be read."""
    line, _ = SECRETS["clone with a token"]
    said = explain([AROUND["unknown"].format(line=line).encode()])
    assert "git.example/k.git" in msgspec.json.encode(said).decode()
