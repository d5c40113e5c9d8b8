"""Messages that a GPU's memory ran out: their numbers, what they mean, and the ways out in their order."""

from __future__ import annotations

import pytest

from builddoctor.diagnose.gpu_memory import NOT_THE_HOST, GpuOom, decode, judge_gpu, kind_of

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU "
    "{gpu} has a total capacity of {total} "
    "of which {free} is free. {who}Of the allocated memory {allocated} is allocated "
    "by PyTorch, {pools}and {spare} is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate {tried} (GPU 0; {total} total capacity; {allocated} already "
    "allocated; {free} free; {reserved} reserved in total by PyTorch)"
)
SEED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 194.00 MiB. GPU 1 "
    "has a total capacity of 139.81 GiB "
    "of which 153.19 MiB is free. Process 4788 has 139.64 GiB memory in use."
)
CAPTURE = [
    '  File "/opt/megatron/cuda_graphs.py", line 3, in create_cudagraphs',
    "    torch.cuda.make_graphed_callables(model)",
    '  File "te/attention.py", line 9, in backward',
    "    grads = torch.autograd.grad(outputs, inputs)",
    "    fused_attn_bwd(q)",
]


OWN = "Including non-PyTorch memory, this process has "


def newer(**fields: str) -> GpuOom:
    usual = {"tried": "194.00 MiB", "gpu": "0", "total": "80.00 GiB", "free": "100.00 MiB", "allocated": "78.00 GiB"}
    usual |= {"pools": "", "spare": "200.00 MiB", "who": f"{OWN}79.00 GiB memory in use. "}
    found = decode(NEW.format(**{**usual, **fields}), 7)
    assert found is not None
    return found


def test_the_seeds_numbers_are_decoded() -> None:
    """194 MiB asked for, 139.81 GiB of card, 153.19 MiB free, 139.64 GiB in use by process 4788, GPU 1."""
    found = decode(SEED, 3)
    assert found is not None
    assert (found.library, found.device, found.tried_mib, found.free_mib) == ("PyTorch", "1", 194.0, 153.19)
    assert found.total_mib == pytest.approx(139.81 * 1024)
    assert found.others == ((4788, pytest.approx(139.64 * 1024)),)


def test_every_form_of_pytorchs_message_has_its_numbers() -> None:
    """0.4 to 1.4 said cached, 1.5 to 2.0 put all in brackets, 2.1 misspelt capacity, 2.4 added private pools."""
    cached = decode(
        "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 "
        "GiB total capacity; 10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB "
        "cached)"
    )
    assert cached is not None
    assert (cached.tried_mib, cached.free_mib, cached.spare_mib) == (1.0, 0.5625, 30.96)
    old = decode(
        OLD.format(tried="22.00 MiB", total="39.59 GiB", allocated="37.24 GiB", free="22.19 MiB", reserved="37.58 GiB")
    )
    assert old is not None
    assert old.spare_mib == pytest.approx(0.34 * 1024)
    misspelt = decode(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. "
        "GPU 0 has a total capacty of 6.00 GiB of which 0 bytes is free."
    )
    assert misspelt is not None
    assert (misspelt.total_mib, misspelt.free_mib) == (6144.0, 0.0)
    pools = newer(pools="with 5.93 GiB allocated in private pools (e.g., CUDA Graphs), ")
    assert pools.pools_mib == pytest.approx(5.93 * 1024)
    assert pools.own_mib == 79 * 1024


def test_a_figure_that_cannot_be_is_none() -> None:
    """2.1 to 2.4 print 17179869184.00 GiB where they do not know; nothing is made of it."""
    found = newer(who="Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. ")
    assert found.own_mib is None


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("RuntimeError: CUDA error: out of memory", "CUDA"),
        ("Failed: Cuda error gemm.cu:123 'out of memory'", "CUDA"),
        ("cudaErrorMemoryAllocation: out of memory", "CUDA"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuBLAS"),
        (
            (
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
                "trying to allocate 8589934592 bytes."
            ),
            "JAX",
        ),
        (
            (
                "ResourceExhaustedError: OOM when allocating tensor with shape[8,9] and type "
                "float on /job:localhost/device:GPU:0 by allocator GPU_0_bfc"
            ),
            "TensorFlow",
        ),
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "PyTorch"),
        (
            "(VllmWorker rank=1 pid=254) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB.",
            "PyTorch",
        ),
        ("E       RuntimeError: CUDA out of memory. Tried to allocate 1.25 GiB.", "PyTorch"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.25 GiB.", "PyTorch"),
        (
            (
                "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes "
                "(allocated so far: 0 bytes)."
            ),
            "CuPy",
        ),
        (
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: "
                "cudaMalloc failed: out of memory"
            ),
            "CUDA",
        ),
        ("node1:12:34 [0] NCCL WARN Cuda failure 'out of memory'", "CUDA"),
    ],
)
def test_other_libraries_say_it_too(line: str, library: str) -> None:
    """Each is the GPU's memory, with what it says about it."""
    found = decode(line)
    assert found is not None
    assert found.library == library
    assert judge_gpu(found).verdict == "gpu-oom"


@pytest.mark.parametrize(
    "line",
    [
        "x.cu: catastrophic error: out of memory",
        "Memory cgroup out of memory: Killed process 1 (cicc)",
        "cc1plus: out of memory allocating 65536 bytes after a total of 12288 bytes",
        "OOM when allocating tensor with shape[8,1024] and type float on /job:localhost/device:CPU:0 by allocator cpu",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory",
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.5GiB. The caller "
            "indicates that this is not a failure"
        ),
        "java.lang.OutOfMemoryError: Java heap space",
        "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
        "If you see RuntimeError: CUDA out of memory, lower the batch size.",
        '   42 |     throw std::runtime_error("CUDA error: out of memory");',
        "warning: enumeration value 'cudaErrorMemoryAllocation' not handled in switch [-Wswitch]",
        "except torch.cuda.OutOfMemoryError:",
    ],
)
def test_the_hosts_memory_and_prose_are_not_the_gpus(line: str) -> None:
    """An allocator of the host, a compiler's own message, source code, and documentation are none of it."""
    assert decode(line) is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "capacity"),
        ({"spare": "9.00 GiB", "allocated": "69.00 GiB"}, "fragmentation"),
        (
            {
                "spare": "100.00 MiB",
                "allocated": "20.00 GiB",
                "who": "Process 9 has 58.00 GiB memory in use. Including non-PyTorch memory, this "
                "process has 21.00 GiB memory in use. ",
            },
            "other-process",
        ),
        ({"tried": "130206.04 GiB"}, "impossible"),
        ({"tried": "50.00 MiB"}, "unclear"),
        ({"pools": "with 40.00 GiB allocated in private pools (e.g., CUDA Graphs), "}, "graph-capture"),
        ({"who": "40.00 GiB allowed; ", "allocated": "39.00 GiB", "free": "40.00 GiB", "tried": "41.00 GiB"}, "share"),
    ],
)
def test_the_numbers_decide_what_it_was(fields: dict[str, str], kind: str) -> None:
    """A full card, pieces too small, somebody else's memory, a tensor that no card holds, and what cannot be told."""
    found = newer(**fields)
    assert kind_of(found) == kind
    assert judge_gpu(found).cause == f"gpu-{kind}"


def test_what_others_hold_shows_in_the_old_form_too() -> None:
    """3 GiB free of 24, 2 GiB in tensors: the rest is somebody else's."""
    found = decode(
        OLD.format(tried="4.00 GiB", total="24.00 GiB", allocated="2.00 GiB", free="3.00 GiB", reserved="2.10 GiB")
    )
    assert found is not None
    told = judge_gpu(found)
    assert told.cause == "gpu-other-process"
    assert told.fixes[0].command.startswith("nvidia-smi")


def test_every_verdict_says_that_it_is_not_the_hosts_memory() -> None:
    """The plain sentence, whatever the numbers are."""
    assert NOT_THE_HOST in judge_gpu(newer()).why
    assert NOT_THE_HOST == (
        "this is the GPU's memory and not the host's: builddoctor, MAX_JOBS and RAM have nothing to do with it"
    )


def test_capture_of_the_backward_pass_is_recognised() -> None:
    """The traceback names make_graphed_callables and autograd.grad: capture takes more than the step itself."""
    found = decode(SEED, 9, CAPTURE)
    assert found is not None
    told = judge_gpu(found)
    assert (told.verdict, told.confidence, told.cause) == ("gpu-oom", "high", "gpu-graph-capture")
    assert "while a CUDA graph of the backward pass was captured" in told.died
    assert "capacity" in told.why
    assert any("make_graphed_callables" in line and "torch.autograd.grad" in line for line in told.evidence)


def test_ladder_of_a_capture_is_the_articles() -> None:
    """Batch, checkpointing, precision, offload, allocator, less capture, newer libraries, more card."""
    found = decode(SEED, 9, CAPTURE)
    assert found is not None
    words = [
        "micro-batch",
        "checkpointing",
        "bf16",
        "offload",
        "segments",
        "capture less",
        "newer PyTorch",
        "larger GPU",
    ]
    fixes = judge_gpu(found).fixes
    assert len(fixes) == len(words)
    assert all(word in fix.text for word, fix in zip(words, fixes, strict=True))


def test_ladder_of_a_full_card_goes_by_cost() -> None:
    """Free and exact first, what changes the result late and marked; no rung changes a binary."""
    fixes = judge_gpu(newer()).fixes
    words = [
        "micro-batch",
        "bf16",
        "checkpointing",
        "segments",
        "SDPA",
        "sequences",
        "8-bit",
        "ZeRO",
        "offload",
        "LoRA",
    ]
    assert all(word in fix.text for word, fix in zip(words, fixes, strict=True))
    changing = [fix.text for fix in fixes if fix.effect.startswith("changes the results")]
    assert [text.split()[0] for text in changing] == ["shorter", "for"]
    assert not any(fix.changes_binary for fix in fixes)


def test_fragmentation_is_answered_with_the_allocator_first() -> None:
    """It is free, and the one thing that helps."""
    first = judge_gpu(newer(spare="9.00 GiB", allocated="69.00 GiB")).fixes[0]
    assert first.command == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_jax_gets_no_settings_of_pytorch() -> None:
    """expandable_segments is PyTorch's; JAX takes most of the card at its start."""
    found = decode("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.")
    assert found is not None
    commands = [fix.command for fix in judge_gpu(found).fixes]
    assert commands[0] == "export XLA_PYTHON_CLIENT_PREALLOCATE=false"
    assert not any("PYTORCH" in command for command in commands)


def test_tensors_beyond_the_card_are_explained() -> None:
    """Under Windows and WSL the driver moves memory to the host; the figures look impossible then."""
    told = judge_gpu(newer(total="8.00 GiB", allocated="17.20 GiB", free="0 bytes", who=""))
    assert any("the driver moved some" in line for line in told.evidence)
