"""Job files in the form of SkyPilot's tasks: what is read, what is passed over with a note, what is
refused where.

The ten files have the fields of examples of SkyPilot's documentation for TPUs; their programs are
ours. Sources: docs.skypilot.co/en/latest/reference/tpu.html,
docs.skypilot.co/en/stable/examples/training/tpu.html,
docs.skypilot.co/en/latest/reference/yaml-spec.html, and examples/tpu of
github.com/skypilot-org/skypilot.
"""

from __future__ import annotations

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.domain.job_file import JobFile, read_job_file

TASKS = {
    # examples/tpu/tpuvm_mnist.yaml
    "tpuvm_mnist": """
name: tpuvm_mnist
resources:
  accelerators: tpu-v2-8
setup: |
  echo "set up"
run: |
  python3 -c "print('trained')"
""",
    # examples/tpu/tpu_app.yaml: with a folder of code, and a requirements.txt that is installed in
    # setup
    "tpu_app": """
name: tpu_app
workdir: ./examples/tpu/tpu_app_code
resources:
  accelerators: tpu-v2-8
setup: |
  pip install -r requirements.txt
run: |
  python -u run.py
""",
    # reference/tpu.html: accelerator_args
    "accelerator_args": """
resources:
  accelerators: tpu-v3-8
  accelerator_args:
    runtime_version: tpu-vm-base
    tpu_vm: true
    tpu_name: my-tpu
run: python -c "print('trained')"
""",
    # reference/tpu.html: a pod, whose hosts are told apart by SKYPILOT_NODE_RANK
    "pod": """
name: pod-mnist
num_nodes: 1
resources:
  accelerators: tpu-v3-32
run: |
  if [ "${SKYPILOT_NODE_RANK}" == "0" ]; then
    echo "the first host of $(echo "$SKYPILOT_NODE_IPS" | wc -l)"
  fi
""",
    # examples/tpu/v6e/train-llama3-8b.yaml: a secret without a value, and the folder of the call
    "train_v6e": """
resources:
  accelerators: tpu-v6e-8
secrets:
  HF_TOKEN: null
workdir: .
setup: echo login
run: python3 run.py --max_steps 20
""",
    # examples/tpu/v6e/benchmark-llama2-7b.yaml
    "benchmark_v6e": """
secrets:
  HF_TOKEN: ""
resources:
  accelerators: tpu-v6e-8
  disk_size: 300
workdir: .
run: |
  cd ~/sky_workdir
  python run.py
""",
    # reference/yaml-spec.html: the forms of accelerators, and where to run
    "forms": """
name: my-task
resources:
  infra: gcp/us-central1/us-central1-b
  accelerators:
    tpu-v2-8: 1
  use_spot: true
  cpus: 4+
  memory: 32+
  disk_size: 256
  disk_tier: medium
  network_tier: best
  ports: 8081
  labels:
    my-label: my-value
  autostop:
    idle_minutes: 10
  job_recovery:
    strategy: EAGER_NEXT_REGION
    max_restarts_on_errors: 3
envs:
  MODEL_SIZE: 13b
  EPOCHS: 10
run: |
  echo "Model size: ${MODEL_SIZE}"
""",
    # reference/yaml-spec.html: ordered, with what all have in common
    "ordered": """
resources:
  use_spot: true
  accelerator_args:
    runtime_version: v2-alpha-tpuv5-lite
  ordered:
    - infra: gcp/us-west4
      accelerators: tpu-v5litepod-8
    - infra: gcp/us-central1
      accelerators: tpu-v5litepod-16:1
run: python -c "print('trained')"
""",
    # reference/yaml-spec.html: file_mounts, with variables in them
    "file_mounts": """
envs:
  MY_BUCKET: my-data
  MY_LOCAL_PATH: tmp-workdir
resources:
  cloud: gcp
  region: us-central1
  accelerators: tpu-v2-8
file_mounts:
  /remote/path: ./local/path
  ~/data.csv: gs://${MY_BUCKET}/data.csv
  ~/folder: ${MY_LOCAL_PATH}
  /checkpoints:
    source: gs://${MY_BUCKET}/
    mode: COPY
run: ls /checkpoints
""",
    # reference/tpu.html: several hosts with an environment that JAX reads
    "v4_pod": """
name: v4-pod
resources:
  any_of:
    - zone: us-central2-b
      accelerators: tpu-v4-32
  priority: 100
envs:
  JAX_DEBUG_NANS: false
run: |
  python3 -c "import jax; print(jax.device_count())"
""",
}


def _read(text: str, **given: dict[str, str]) -> JobFile:
    return read_job_file(
        text, "task.yaml", given.get("env", {}), given.get("secrets", {"HF_TOKEN": "secret"})
    )


@pytest.mark.parametrize("name", TASKS)
def test_tasks_as_the_documentation_has_them_are_read(name: str) -> None:
    file = _read(TASKS[name])
    assert file.body["run"]["command"]
    assert all(place.accelerator_type and place.runtime_version for place in file.places)


def test_what_a_task_comes_to() -> None:
    file = _read(TASKS["forms"])
    assert file.name == "my-task"
    (place,) = file.places
    assert place == ("v2-8", "tpu-ubuntu2204-base", "us-central1-b", "us-central1", True)
    assert file.body == {
        "run": {
            "command": 'echo "Model size: ${MODEL_SIZE}"\n',
            "env": {"MODEL_SIZE": "13b", "EPOCHS": "10"},
            "secrets": {"HF_TOKEN": "secret"},
        },
        "maxFailures": 3,
        "autostopSeconds": 600,
        "labels": {"my-label": "my-value"},
    }
    lines = [note.split(":")[0] for note in file.notes]
    assert lines == ["line 19", "line 8", "line 9", "line 10", "line 11", "line 12", "line 13"]


def test_num_nodes_counts_slices() -> None:
    assert "numNodes" not in _read(TASKS["pod"]).body
    assert _read(BASE + "num_nodes: 2\n").body["numNodes"] == 2


def test_places_are_in_the_order_of_the_file() -> None:
    first, second = _read(TASKS["ordered"]).places
    assert first == ("v5litepod-8", "v2-alpha-tpuv5-lite", "", "us-west4", True)
    assert (second.accelerator_type, second.region) == ("v5litepod-16", "us-central1")


def test_files_and_their_variables() -> None:
    file = _read(TASKS["file_mounts"])
    assert file.mounts == {
        "/remote/path": "./local/path",
        "~/data.csv": "gs://my-data/data.csv",
        "~/folder": "tmp-workdir",
        "/checkpoints": "gs://my-data/",
    }
    assert (file.places[0].region, file.places[0].zone) == ("us-central1", "")
    assert _read(TASKS["tpu_app"]).workdir == "./examples/tpu/tpu_app_code"
    assert _read(TASKS["tpuvm_mnist"]).name == "tpuvm-mnist"


def test_the_command_line_has_the_last_word_on_variables() -> None:
    file = _read(TASKS["forms"], env={"MODEL_SIZE": "7b"})
    assert file.body["run"]["env"]["MODEL_SIZE"] == "7b"


BASE = "resources:\n  accelerators: tpu-v2-8\nrun: echo\n"
REFUSED = [
    ("", "line 1: a job file must be a mapping"),
    ("- a\n- b\n", "line 1: a job file must be a mapping, not a list"),
    ("run: echo\nrun: again\n", "lines 1 and 2"),
    ("run: [echo\n", "line 2: not YAML"),
    ("run: echo\n---\nrun: again\n", "line 2: not YAML"),
    ("run: !!python/object/apply:os.system ['id']\n", "line 1: not YAML"),
    ("a: &a [x]\nrun: *b\n", "line 2: not YAML"),
    ("1: 2\nrun: echo\n", "a key that is not a text"),
    ("resources:\n  accelerators: tpu-v2-8\n", "line 1: run is required"),
    (BASE.replace("echo", "[echo]"), "line 3: run must be a text, not a list"),
    (BASE + "setup: {a: b}\n", "line 4: setup must be a text, not a mapping"),
    ("run: echo\n", "resources.accelerators is required"),
    (BASE.replace("tpu-v2-8", "H100:8"),
        "line 2: resources.accelerators is 'H100': jobs run on TPUs"),
    (BASE.replace("tpu-v2-8", "tpu-v2-9"), "line 2: .* does not exist; the nearest that do are"),
    (BASE.replace("tpu-v2-8", "tpu-v2-8:4"), "line 2: .*the count is 4: it must be 1"),
    (BASE.replace("tpu-v2-8", "tpu-v2-8:x"), "line 2: .*the count is x"),
    (BASE.replace("tpu-v2-8", "[tpu-v2-8, tpu-v3-8]"), "line 2: .*must be one TPU type"),
    (BASE.replace("tpu-v2-8", "{tpu-v2-8: 1, tpu-v3-8: 1}"), "line 2: .*must be one TPU type"),
    (BASE + "num_nodes: 65\n",
        "line 4: num_nodes is 65: it must be from 1 to 64; it counts slices"),
    (BASE + "num_nodes: 0\n", "line 4: num_nodes is 0: it must be from 1 to 64"),
    (BASE + "num_nodes: true\n", "line 4: num_nodes is True"),
    (BASE + "service:\n  readiness_probe: /\n", "line 4: service is not supported"),
    (BASE + "event_callback: echo\n", "line 4: event_callback is not supported: .*webhook"),
    (BASE + "config:\n  docker: {}\n", "line 4: config is not supported"),
    (BASE + "managed_secrets: [a]\n", "line 4: managed_secrets is not supported"),
    (BASE + "secrets: [a]\n", "line 4: secrets must be a mapping"),
    (BASE + "envs:\n  KEY:\n", "line 5: envs.KEY has no value: pass it with --env KEY=VALUE"),
    (BASE + "envs:\n  KEY: [1]\n", "line 5: envs.KEY must be a text"),
    (BASE + "workdir:\n  url: https://example.com/x.git\n", "line 4: workdir must be a folder"),
    (BASE + "vm: big\n", "line 4: unknown field 'vm'"),
    (BASE + "name: '123'\n", "line 4: name is '123': it must begin with a letter"),
    (BASE + "file_mounts:\n  /data: s3://bucket/x\n",
        "line 5: file_mounts./data: s3://bucket/x is not here"),
    (BASE + "file_mounts:\n  /data: https://example.com/x\n", "line 5: .* is not here"),
    (BASE + "file_mounts:\n  /data:\n    source: gs://b\n    mode: MOUNT\n",
        "line 5: .*buckets are not mounted"),
    (BASE + "file_mounts:\n  /data: 5\n",
        "line 5: .*must be a path or a gs:// object, not a number"),
    (BASE + "file_mounts: [a]\n", "line 4: file_mounts must be a mapping"),
    ("resources:\n  accelerators: tpu-v2-8\n  cloud: aws\nrun: echo\n",
        "line 3: TPUs are in gcp, not in 'aws'"),
    ("resources:\n  accelerators: tpu-v2-8\n  infra: k8s/x\nrun: echo\n",
        "line 3: TPUs are in gcp"),
    ("resources:\n  accelerators: tpu-v2-8\n  infra: gcp\n  zone: z\nrun: echo\n",
        "line 3: .*cannot be combined"),
    ("resources:\n  accelerators: tpu-v2-8\n  image_id: docker:x\nrun: echo\n",
        "line 3: .*runtime_version"),
    ("resources:\n  accelerators: tpu-v2-8\n  instance_type: n1\nrun: echo\n",
        "line 3: .*use accelerators"),
    ("resources:\n  accelerators: tpu-v2-8\n  max_hourly_cost: 3\nrun: echo\n", "line 3: .*budget"),
    ("resources:\n  accelerators: tpu-v2-8\n  use_spot: maybe\nrun: echo\n",
        "line 3: .*true or false"),
    ("resources:\n  accelerators: tpu-v2-8\n  priority: high\nrun: echo\n",
        "priority must be a whole number"),
    ("resources:\n  accelerators: tpu-v2-8\n  accelerator_args:\n    tpu_vm: false\nrun: echo\n",
        "line 4: .*tpu_vm"),
    ("resources:\n  accelerators: tpu-v2-8\n  accelerator_args:\n    chips: 4\nrun: echo\n",
        "line 4: unknown field"),
    ("resources:\n  accelerators: tpu-v2-8\n  autostop: soon\nrun: echo\n",
        "line 3: .*minutes or a time such as 1h"),
    ("resources:\n  accelerators: tpu-v2-8\n  autostop:\n    hook: x\nrun: echo\n",
        "line 4: .*end of run"),
    ("resources:\n  any_of: []\nrun: echo\n", "line 2: resources.any_of must be a list"),
    ("resources:\n  any_of: [{}]\n  ordered: [{}]\nrun: echo\n",
        "line 3: resources has any_of and ordered"),
    ("resources:\n  any_of:\n    - accelerators: tpu-v2-8\n    - accelerators: A100\nrun: echo\n",
        "line 4: .*'A100'"),
    ("resources:\n  accelerators: tpu-v2-8\n  job_recovery: {recover_on_exit_codes: 3}\nrun: x\n",
        "line 3: .*max"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("autostop", "seconds"),
    [
        ("5", 300),
        ("'90s'", 90),
        ("1h", 3600),
        ("true", 300),
        ("false", 0),
        ("{idle_minutes: 0}", 0),
        ("{down: true}", 300),
    ],
)
def test_an_autostop_time_in_all_its_forms(autostop: str, seconds: int) -> None:
    file = _read(f"resources:\n  accelerators: tpu-v2-8\n  autostop: {autostop}\nrun: echo\n")
    assert file.body["autostopSeconds"] == seconds


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_cannot_be_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(PodyardError, match=why) as refusal:
        _read(text)
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert refusal.value.message.startswith("task.yaml")
