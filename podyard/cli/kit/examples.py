"""Examples of each command, which its help ends with. `tests/unit/cli/test_help.py` parses every
one."""

from __future__ import annotations

from collections.abc import Mapping

_BRACES = "podyard project create 'student-{01..20}' --quota chips=32 --budget 50 --invite"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "podyard up": ("podyard up", "podyard up --data ~/lab --port 8700 --detach"),
    "podyard down": ("podyard down", "podyard down --data ~/lab --delete-data"),
    "podyard status": ("podyard status", "podyard status -o json"),
    "podyard open": ("podyard open", "podyard open --print"),
    "podyard demo": ("podyard demo",),
    "podyard doctor": ("podyard doctor",),
    "podyard top": ("podyard top", "podyard top --once"),
    "podyard nodes": ("podyard nodes", "podyard nodes --filter state=READY --sort-by ~age -o wide"),
    "podyard jobs": (
        "podyard jobs --watch",
        "podyard jobs --filter 'state=RUNNING AND cost>1' -o name",
    ),
    "podyard logs": (
        "podyard logs digits --follow",
        "podyard logs digits --first-error",
        "podyard logs digits --tail 50",
    ),
    "podyard events": (
        "podyard events",
        "podyard events digits --limit 50",
        "podyard events --filter kind=node -o csv",
    ),
    "podyard tpu": (
        "podyard tpu list",
        "podyard tpu create pod --accelerator-type v2-8 --version tpu-vm-base --preemptible",
    ),
    "podyard tpu create": (
        (
            "podyard tpu create pod --zone us-central1-f --accelerator-type v2-8 --version "
            "tpu-vm-base --preemptible"
        ),
        (
            "podyard tpu create cube --zone us-central2-b --type v4 --topology 2x2x2 --version "
            "tpu-vm-v4-base"
        ),
    ),
    "podyard tpu delete": ("podyard tpu delete pod --quiet",),
    "podyard tpu describe": ("podyard tpu describe pod -o json",),
    "podyard tpu devices": ("podyard tpu devices --accelerator-type v3-8",),
    "podyard tpu env": ('eval "$(podyard tpu env pod --worker 1)"',),
    "podyard tpu exec": ("podyard tpu exec pod --worker all -- hostname",),
    "podyard tpu programs": ("podyard tpu programs pod", "podyard tpu programs pod -o json"),
    "podyard tpu hosts": ("podyard tpu hosts pod", "podyard tpu hosts pod -o wide"),
    "podyard tpu list": (
        "podyard tpu list",
        "podyard tpu list --filter 'state=READY AND zone:us-' --sort-by name -o wide",
    ),
    "podyard tpu preempt": ("podyard tpu preempt pod",),
    "podyard tpu schedule-maintenance": (
        (
            "podyard tpu schedule-maintenance pod --start 2030-01-31T09:00:00Z --end "
            "2030-01-31T11:00:00Z"
        ),
    ),
    "podyard tpu scp": ("podyard tpu scp train.py pod:train.py --worker all",),
    "podyard tpu ssh": (
        "podyard tpu ssh pod",
        "podyard tpu ssh pod --worker all --command hostname",
    ),
    "podyard tpu notebook": (
        "podyard tpu notebook pod",
        "podyard tpu notebook pod --port 0 --no-browser",
    ),
    "podyard tpu ssh-config": ("podyard tpu ssh-config pod > ssh.conf && ssh -F ssh.conf pod-w-0",),
    "podyard tpu start": ("podyard tpu start pod",),
    "podyard tpu stop": ("podyard tpu stop pod",),
    "podyard webhook": ("podyard webhook list",),
    "podyard webhook set": (
        (
            "podyard webhook set chat --url https://example.com/hook --event job.failed --event "
            "node.preempted"
        ),
    ),
    "podyard webhook list": ("podyard webhook list -o wide",),
    "podyard webhook delete": ("podyard webhook delete chat",),
    "podyard webhook test": ("podyard webhook test chat",),
    "podyard webhook deliveries": ("podyard webhook deliveries chat --filter state=waiting",),
    "podyard qr": ("podyard qr list",),
    "podyard qr create": (
        (
            "podyard qr create wish --node-id pod --accelerator-type v3-32 --runtime-version "
            "tpu-vm-base --spot"
        ),
    ),
    "podyard qr delete": ("podyard qr delete wish --force --quiet",),
    "podyard qr describe": ("podyard qr describe wish",),
    "podyard qr list": ("podyard qr list --watch", "podyard qr list --filter state=ACTIVE"),
    "podyard qr reset": ("podyard qr reset wish",),
    "podyard reservation": ("podyard reservation list",),
    "podyard reservation create": (
        "podyard reservation create lab --zone us-central2-b --generation v4 --size 128",
    ),
    "podyard reservation delete": ("podyard reservation delete lab --quiet",),
    "podyard reservation list": ("podyard reservation list --sort-by ~size",),
    "podyard queue": ("podyard queue list",),
    "podyard queue list": ("podyard queue list --watch",),
    "podyard pods": ("podyard pods list",),
    "podyard pods list": ("podyard pods list --filter generation=v4",),
    "podyard pods show": ("podyard pods show us-central2-b-v4-0",),
    "podyard pods defragment": ("podyard pods defragment us-central2-b-v4-0 v4-128",),
    "podyard hardware": ("podyard hardware list",),
    "podyard hardware list": (
        "podyard hardware list --generation v4",
        "podyard hardware list --filter 'chips>=1024' -o csv",
    ),
    "podyard hardware show": ("podyard hardware show v4", "podyard hardware show v3-32 -o json"),
    "podyard runtime": ("podyard runtime list",),
    "podyard runtime list": ("podyard runtime list --filter state=installed",),
    "podyard runtime install": ("podyard runtime install tpu-ubuntu2204-base",),
    "podyard runtime remove": ("podyard runtime remove tpu-ubuntu2204-base",),
    "podyard job": ("podyard job submit --recipe digits-cnn --node pod --wait", "podyard job list"),
    "podyard job submit": (
        "podyard job submit digits --recipe digits-cnn --node pod --steps 200 --wait",
        "podyard job submit --run train.py --accelerator-type v2-8 -- --epochs 3",
        "podyard job submit --recipe digits-cnn --accelerator-type v3-32 --dry-run",
    ),
    "podyard job launch": ("podyard job launch task.yaml --wait",),
    "podyard job clone": ("podyard job clone digits digits-2 --arg learningRate=0.01",),
    "podyard job list": (
        "podyard job list --filter state=FAILED --sort-by ~cost --limit 10",
        "podyard job list --watch -o wide",
    ),
    "podyard job describe": ("podyard job describe digits",),
    "podyard job cancel": ("podyard job cancel digits",),
    "podyard job resize": (
        "podyard job resize digits --accelerator-type v3-32",
        "podyard job resize digits --replicas 4",
    ),
    "podyard job export": ("podyard job export digits -o out",),
    "podyard job wait": ("podyard job wait digits --timeout 600",),
    "podyard job evaluations": ("podyard job evaluations digits",),
    "podyard job artifacts": ("podyard job artifacts digits",),
    "podyard job download": ("podyard job download digits -o out",),
    "podyard job logs": (
        "podyard job logs digits --follow",
        "podyard job logs digits --worker 2 --grep error",
    ),
    "podyard job stacks": ("podyard job stacks digits --worker 0",),
    "podyard sweep": ("podyard sweep list",),
    "podyard sweep submit": (
        (
            "podyard sweep submit rates --recipe digits-cnn --node pod "
            "--values learningRate=0.001,0.01"
        ),
    ),
    "podyard sweep list": ("podyard sweep list --limit 5",),
    "podyard sweep describe": ("podyard sweep describe rates",),
    "podyard sweep cancel": ("podyard sweep cancel rates",),
    "podyard tensorboard": ("podyard tensorboard digits digits-2",),
    "podyard storage": ("podyard storage ls gs://my-bucket",),
    "podyard storage cat": ("podyard storage cat gs://my-bucket/notes.txt",),
    "podyard storage cp": (
        "podyard storage cp data.csv gs://my-bucket/",
        "podyard storage cp -r gs://my-bucket/run1 out",
    ),
    "podyard storage ls": ("podyard storage ls", "podyard storage ls -l gs://my-bucket/run1/"),
    "podyard storage mb": ("podyard storage mb gs://my-bucket",),
    "podyard storage rb": ("podyard storage rb gs://my-bucket",),
    "podyard storage rm": ("podyard storage rm -r gs://my-bucket/run1",),
    "podyard storage sync": ("podyard storage sync data gs://my-bucket/data",),
    "podyard dataset": ("podyard dataset list",),
    "podyard dataset list": ("podyard dataset list -o json",),
    "podyard dataset add": ("podyard dataset add mnist ~/Downloads/mnist.npz",),
    "podyard predict": ("podyard predict --export out/export --input examples.npy",),
    "podyard estimate": ("podyard estimate digits-cnn --accelerator-type v3-32",),
    "podyard plan": ("podyard plan digits-cnn --steps 10000 --deadline 6h --types v2-8,v3-8",),
    "podyard explain": ("podyard explain mxu",),
    "podyard explain mxu": ("podyard explain mxu",),
    "podyard explain all-reduce": ("podyard explain all-reduce",),
    "podyard explain tpu-v1": ("podyard explain tpu-v1",),
    "podyard simulate": ("podyard simulate --seed 7 --days 3 --nodes 20",),
    "podyard bill": ("podyard bill show",),
    "podyard bill show": ("podyard bill show",),
    "podyard bill costs": ("podyard bill costs",),
    "podyard bill explore": ("podyard bill explore",),
    "podyard bill what-if": ("podyard bill what-if",),
    "podyard bill invoice": ("podyard bill invoice 2026-03", "podyard bill invoice --list"),
    "podyard bill close": ("podyard bill close 2026-03",),
    "podyard bill explain": (
        "podyard bill explain 2026-03 tpu-v2-device/us-central1/on-demand@4.50",
    ),
    "podyard bill export": ("podyard bill export 2026-03 --out month.csv",),
    "podyard bill replay": ("podyard bill replay cases.jsonl",),
    "podyard bill account": ("podyard bill account show",),
    "podyard bill account show": ("podyard bill account show",),
    "podyard bill account set": ("podyard bill account set --currency EUR",),
    "podyard bill account link": ("podyard bill account link university",),
    "podyard bill account unlink": ("podyard bill account unlink",),
    "podyard bill credit": ("podyard bill credit list",),
    "podyard bill credit add": ("podyard bill credit add --amount 300 --until-month 2026-12",),
    "podyard bill credit end": ("podyard bill credit end credit-1 --reason 'entered twice'",),
    "podyard bill credit list": ("podyard bill credit list",),
    "podyard bill credit-note": ("podyard bill credit-note list",),
    "podyard bill credit-note create": (
        "podyard bill credit-note create 2026-03 12.50 --reason 'outage on 3 March'",
    ),
    "podyard bill credit-note list": ("podyard bill credit-note list",),
    "podyard budget": ("podyard budget list",),
    "podyard budget set": (
        (
            "podyard budget set lab --amount 500 --threshold 0.8 --threshold 1 --action "
            "refuse-new-nodes"
        ),
    ),
    "podyard budget list": ("podyard budget list --sort-by ~spent",),
    "podyard budget delete": ("podyard budget delete lab",),
    "podyard budget events": ("podyard budget events",),
    "podyard commitment": ("podyard commitment list",),
    "podyard commitment buy": ("podyard commitment buy --type v4-8 --years 1 --dry-run",),
    "podyard commitment end": ("podyard commitment end commitment-1 --reason 'bought twice'",),
    "podyard commitment list": ("podyard commitment list",),
    "podyard price": ("podyard price list --type v2-8",),
    "podyard price list": (
        "podyard price list --generation v4 --usage spot",
        "podyard price list --type v3-32 --sort-by usd",
    ),
    "podyard price show": ("podyard price show v2-8 --region us-central1",),
    "podyard price diff": ("podyard price diff old.csv new.csv",),
    "podyard env": ('eval "$(podyard env)"', "podyard env -o json"),
    "podyard run": (
        "podyard run --tpu v3-8 -- python train.py",
        "podyard run --tpu v3-32,v5p-64 --dry-run -- python train.py",
        "podyard run -- python create_nodes.py",
    ),
    "podyard ssh": ("podyard ssh setup",),
    "podyard ssh setup": ("podyard ssh setup --yes",),
    "podyard ssh connect": ("podyard ssh connect 198.18.0.2:22",),
    "podyard connect": ("podyard connect https://lab.example:8743",),
    "podyard calls": ("podyard calls --unserved",),
    "podyard completion": (
        'eval "$(podyard completion bash)"        # in ~/.bashrc',
        'eval "$(podyard completion zsh)"         # in ~/.zshrc, after compinit',
        "podyard completion fish > ~/.config/fish/completions/podyard.fish",
    ),
    "podyard project": ("podyard project list",),
    "podyard project create": ("podyard project create lab --labels team=vision", _BRACES),
    "podyard project list": ("podyard project list --filter 'project=student-*'",),
    "podyard project update": ("podyard project update student-01 --quota chips=64",),
    "podyard project reset": (
        "podyard project reset student-01",
        "podyard project reset 'student-*' --yes",
    ),
    "podyard auth": ("podyard auth whoami",),
    "podyard auth accept": ("podyard auth accept pdyinv_CODE",),
    "podyard auth api-key": ("podyard auth api-key list",),
    "podyard auth api-key create": ("podyard auth api-key create ann@example.com",),
    "podyard auth api-key delete": ("podyard auth api-key delete KEY_ID",),
    "podyard auth api-key list": ("podyard auth api-key list",),
    "podyard auth invitation": ("podyard auth invitation list",),
    "podyard auth invitation create": (
        "podyard auth invitation create ann@example.com --role tpu.admin",
    ),
    "podyard auth invitation list": ("podyard auth invitation list --filter state=ACTIVE",),
    "podyard auth invitation revoke": ("podyard auth invitation revoke INVITATION_ID",),
    "podyard auth key": ("podyard auth key list",),
    "podyard auth key create": (
        "podyard auth key create --service-account robot --role tpu.admin -o robot.json",
    ),
    "podyard auth key delete": ("podyard auth key delete KEY_ID",),
    "podyard auth key list": ("podyard auth key list",),
    "podyard auth print-token": ("podyard auth print-token",),
    "podyard auth token": ("podyard auth token list",),
    "podyard auth token create": (
        "podyard auth token create ann@example.com --role jobs.runner --expires-in 30d",
    ),
    "podyard auth token describe": ("podyard auth token describe TOKEN_ID",),
    "podyard auth token list": ("podyard auth token list --filter state=ACTIVE",),
    "podyard auth token renew": ("podyard auth token renew --expires-in 30d",),
    "podyard auth token revoke": ("podyard auth token revoke TOKEN_ID",),
    "podyard auth whoami": ("podyard auth whoami",),
    "podyard agent": ("podyard agent list",),
    "podyard agent describe": ("podyard agent describe shelf-2",),
    "podyard agent drain": ("podyard agent drain shelf-2",),
    "podyard agent join": (
        "podyard agent join https://lab.example:8743 --token TOKEN --name rack-2",
    ),
    "podyard agent list": ("podyard agent list --watch",),
    "podyard agent remove": ("podyard agent remove shelf-2",),
    "podyard agent resume": ("podyard agent resume shelf-2",),
    "podyard agent token": ("podyard agent token",),
    "podyard clock": ("podyard clock show",),
    "podyard clock show": ("podyard clock show",),
    "podyard clock set-rate": ("podyard clock set-rate 60",),
    "podyard clock pause": ("podyard clock pause",),
    "podyard clock advance": (
        "podyard clock advance 36h",
        "podyard clock advance --to 2030-01-31T00:00:00Z",
    ),
    "podyard fault": ("podyard fault list",),
    "podyard fault add": ("podyard fault add stockout --zone us-central2-b",),
    "podyard fault effects": ("podyard fault effects",),
    "podyard fault list": ("podyard fault list --filter effect=stockout",),
    "podyard fault rm": ("podyard fault rm --all",),
    "podyard fsck": ("podyard fsck", "podyard fsck -o json"),
    "podyard admin": ("podyard admin audit",),
    "podyard admin adopt-folders": ("podyard admin adopt-folders",),
    "podyard admin audit": (
        "podyard admin audit --refused --limit 20",
        "podyard admin audit --actor ann@example.com -o csv",
    ),
    "podyard admin backup": ("podyard admin backup podyard.tar",),
    "podyard admin copy-database": (
        "podyard admin copy-database sqlite:////var/lib/podyard/podyard.db postgresql://db/podyard",
    ),
    "podyard admin restore": ("podyard admin restore podyard.tar --data ~/restored",),
}
