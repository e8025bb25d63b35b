"""One program, recorded with cold caches, run plainly, recorded with warm caches, and recorded with --keep-cache."""

from __future__ import annotations

from collections import Counter

import pytest

import graphdbg

pytestmark = pytest.mark.long  # all share one recording

KINDS = (
    "static",
    "dynamic@aot_eager",
    "autocast@aot_eager",
    "graph_break@aot_eager",
    "own_backend",
    "own_pass",
    "mutation",
)


@pytest.fixture(scope="module")
def cold(runner):
    runner.forget()
    return runner.dump("cold", "--inputs", "first", "--", str(_script()), *KINDS)


@pytest.fixture(scope="module")
def plain(runner, cold):
    return runner.script("models.py", *KINDS)


@pytest.fixture(scope="module")
def kept(runner, plain):
    return runner.dump("kept", "--keep-cache", "--", str(_script()), "static")


def _script():
    from pathlib import Path

    return Path(__file__).parent / "scripts" / "models.py"


def test_output_and_exit_code_are_the_programs_own(plain, cold, kept):
    assert plain.code == 0, plain.stderr
    assert (cold.code, kept.code) == (0, 0), cold.stderr
    assert cold.stdout == plain.stdout
    assert plain.stdout.startswith(kept.stdout)


def test_nothing_went_wrong_inside(cold):
    assert "not recorded" not in cold.stderr, cold.stderr


@pytest.mark.slow  # test_held records with warm caches, too
def test_cold_and_warm_hold_the_same_graphs(runner, plain, cold):
    warm = runner.dump("warm", "--", str(_script()), *KINDS)
    assert (warm.code, warm.stdout) == (0, plain.stdout)
    assert cold.graphs() == warm.graphs()
    assert "not recorded" not in warm.stderr, warm.stderr


def test_every_stage_of_a_training_step_is_there(cold):
    training = {
        "dynamo",
        "pre_grad",
        "joint",
        "joint_passed",
        "forward",
        "backward",
        "post_grad_forward",
        "post_grad_backward",
    }
    inference = {"dynamo", "pre_grad", "inference", "joint_passed", "post_grad_inference"}
    graphs = cold.graphs()
    assert {f"0_0/{stage}" for stage in training} <= graphs
    assert {f"0_1/{stage}" for stage in inference} <= graphs


def test_the_users_file_is_kept_as_it_was_and_nobody_elses(cold):
    for saved in graphdbg.open_run(cold.run).graphs()[:3]:
        assert list(saved.sources.records) == [str(_script())]
        assert saved.sources.text(str(_script())) == _script().read_text()


def test_every_status_is_settled(cold):
    statuses = Counter(saved.status for saved in graphdbg.open_run(cold.run).graphs())
    assert set(statuses) <= {"ran", "compiled", "skipped"}, statuses
    assert statuses["ran"] >= 20


def test_ids_follow_recompiles_attempts_and_breaks(cold):
    graphs = cold.graphs()
    assert "0_0_a1/forward" in graphs  # dynamic=True starts over once
    assert "1_0/forward" in graphs  # after the graph break


def test_summary_counts_and_names_the_next_commands(cold):
    lines = cold.stderr.splitlines()
    assert any(line.startswith("graphdbg: recorded ") and "forward" in line for line in lines)
    assert any("compiler caches were off" in line for line in lines)
    assert "  graphdbg ls cold" in lines
    assert any(line.startswith("  graphdbg replay cold/") for line in lines)


def test_keep_cache_names_what_the_caches_hid(kept):
    assert (
        "0_0: the joint, forward, backward and inference graphs not recorded, hidden by the AOTAutograd cache"
        in kept.stderr
    )
    early = {"0_0/pre_grad", "0_1/pre_grad"}  # before 2.12 torch looks into the cache after these passes, not before
    assert kept.graphs() - early == {"0_0/dynamo", "0_1/dynamo"}


def test_records_say_what_the_compiler_was_given(cold):
    run = graphdbg.open_run(cold.run)
    forward, backward, joint = (run.graph(f"0_0/{stage}").record for stage in ("forward", "backward", "joint"))
    assert forward.compile_kwargs["is_backward"] is False
    assert forward.compile_kwargs["static_input_idxs"] == [0, 1, 3, 4]
    assert forward.graph.nodes[-1].meta["user_visible_output_idxs"] == [0]
    assert backward.compile_kwargs["is_backward"] is True
    assert backward.compile_kwargs["bw_donated_idxs"]
    assert joint.compile_kwargs["num_fwd_outputs"] == 1
    assert joint.compile_kwargs["num_orig_model_outputs"] == 1
    inference = run.graph("0_1/inference").record
    assert inference.compile_kwargs["is_inference"] is True
    assert inference.graph.nodes[-1].meta["user_visible_output_idxs"] == [0]


def test_inputs_have_roles_and_sources(cold):
    run = graphdbg.open_run(cold.run)
    forward = {item.name: item for item in run.graph("0_0/forward").record.inputs}
    assert forward["primals_1"].role == "parameter"
    assert forward["primals_1"].source == "L['fn']._modules['0']._parameters['weight']"
    assert forward["primals_3"].role == "user"
    assert {item.role for item in run.graph("0_0/joint").record.inputs} == {"parameter", "user", "tangent"}
    assert "saved" in {item.role for item in run.graph("0_0/backward").record.inputs}
    assert {item.role for item in run.graph("0_0/dynamo").record.inputs} == {"parameter", "user"}


def test_first_inputs_are_stored_before_mutation(cold):
    run = graphdbg.open_run(cold.run)
    mutated = [saved for saved in run.graphs() if saved.stage == "inference" and _mutates(saved)]
    assert mutated, "the graph that adds into its input is recorded"
    for value in mutated[-1].inputs():
        assert value.abs().sum() == 0  # both inputs are zero at the first call; the counter is not yet added to


def _mutates(saved):
    return any(node.target.startswith("aten.copy_") for node in saved.record.graph.nodes)


def test_generated_code_lies_beside_the_graph(cold):
    run = graphdbg.open_run(cold.run)
    names = [path.name for path in run.graph("0_0/forward").code_files()]
    assert "output_code.py" in names
    assert any(name.endswith(".cpp") for name in names)


def test_options_and_own_pass_are_in_the_configuration(cold):
    run = graphdbg.open_run(cold.run)
    configs = [
        saved.record.config.get("inductor", {}) for saved in run.graphs() if saved.stage in ("dynamo", "forward")
    ]
    changed = [config for config in configs if "post_grad_custom_post_pass" in config]
    assert len(changed) == 2
    assert all(config["epilogue_fusion"] is False for config in changed)
    assert all("opaque" in config["post_grad_custom_post_pass"] for config in changed)


def test_the_run_knows_its_settings_and_versions(runner, cold):
    record = graphdbg.open_run(cold.run).record
    assert record.versions["torch"] and record.versions["python"]
    assert record.inputs_policy == "first"
    assert record.command[-len(KINDS) :] == list(KINDS)


def test_autocast_is_in_the_ambient_state(cold):
    run = graphdbg.open_run(cold.run)
    results = [saved.record.ambient.autocast for saved in run.graphs() if saved.stage == "dynamo"]
    assert {"cpu": "bfloat16"} in results


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["dynamic", "aot_eager", "autocast", "graph_break", "automatic", "lstm", "convnet", "eager", "mode"]
)
def test_more_kinds_of_models(runner, kind):
    runner.forget()
    cold = runner.dump(f"cold-{kind}", "--", str(_script()), kind)
    plain = runner.script("models.py", kind)
    warm = runner.dump(f"warm-{kind}", "--", str(_script()), kind)
    assert plain.code == 0, plain.stderr
    assert cold.stdout == warm.stdout == plain.stdout
    assert cold.graphs() == warm.graphs()
    assert "not recorded" not in cold.stderr


@pytest.mark.slow
def test_no_graph_and_no_tensor_is_kept_alive(runner):
    kinds = ("static", "alive", "dynamic", "alive", "aot_eager", "alive", "own_backend", "alive", "mutation", "alive")
    plain = runner.script("models.py", *kinds, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    done = runner.dump("alive", "--inputs", "first", "--", str(_script()), *kinds)
    assert plain.code == 0, plain.stderr
    assert done.stdout == plain.stdout


ODD = ("direct", "threads", "cond", "nested", "freezing", "empty", "custom_function", "modes", "user_aot_backend")


@pytest.mark.slow
def test_unusual_ways_to_compile(runner):
    odd = str(_script().with_name("odd.py"))
    done = runner.dump("odd", "--", odd, *ODD)
    plain = runner.python(odd, *ODD)
    assert plain.code == 0, plain.stderr
    assert done.stdout == plain.stdout
    assert "not recorded, " not in done.stderr, done.stderr
    graphs = done.graphs()
    assert {"x0_0/inference", "x0_0/post_grad_inference", "x1_0/inference"} <= graphs
    assert not any(path.endswith("joint.3") for path in graphs), (
        "joint graphs of nested regions have no entry of their own"
    )
