"""The table of private torch names that toolkit and minifier use; what saving and loading needs stands in dumps' own.

Each row's comment has the public alternative that is missing, or falls short; checked on torch 2.13.0.
"""

from typing import TYPE_CHECKING

from ...dumps.private_names import Names, Row
from ...dumps.torchside.torch_private import NAMES as BELOW

if TYPE_CHECKING:  # types that annotations name
    from torch._inductor.graph import GraphLowering as GraphLowering
    from torch._inductor.output_code import CompiledFxGraph as CompiledFxGraph
    from torch._inductor.output_code import OutputCode as OutputCode

_INDUCTOR, _COMPILE = "the rungs of Inductor", "the rungs of Inductor, compile and graphdbg's backends"
_TRITON = "triton_interpret and kernel"
_CUDAGRAPHS, _AHEAD = "inductor_cudagraphs and compile, on a GPU", "packages made ahead of time"
_PASSES, _UNSEEN = "compile", "the pass is not seen, and cannot be skipped"
_BACKWARD = "dump --compiled-autograd"
_BACKENDS, _SCRIPT, _LAZY = "graphdbg's backends", "torchscript and graphdbg_ts", "lazy and graphdbg_lazy"
_CAPTURE = "capture and import"
_BESIDE = "triage of a command"
_FORK = "every command that replays"
_OLD_ANSWER = "an answer from before may be kept"

HOOKS = (
    # TORCH_COMPILE_OVERRIDE_BACKENDS sees every graph too, but loses the user's backend, mode and options.
    Row("torch._dynamo.output_graph", "OutputGraph.call_user_compiler", "record",
        "every backend, with its options, is called through here", stages=("dynamo",)),
    # No public hook frames one compile_fx call made without Dynamo.
    Row("torch._inductor.compile_fx", "compile_fx_main=_compile_fx_main", "record",
        "frames a direct call of compile_fx, which has no compile id"),
    # Exported by a module with an underscore; there it is imported at each call.
    Row("torch._inductor.standalone_compile", "standalone_compile", "record",
        "a compile whose result can be saved, which needs the caches that a recording bypasses"),
    # inductor.config.pre_grad_custom_pass is public but belongs to the user.
    Row("torch._inductor.compile_fx", "recursive_pre_grad_passes=_recursive_pre_grad_passes", "record",
        "its result is the pre_grad graph", stages=("pre_grad",)),
    # joint_custom_pre_pass is public but belongs to the user, and does not tell joint from inference.
    Row("torch._inductor.compile_fx", "partition_fn", "record", "its argument is the joint graph", stages=("joint",)),
    # joint_custom_post_pass is public but belongs to the user.
    Row("torch._inductor.compile_fx", "recursive_joint_graph_passes=_recursive_joint_graph_passes", "record",
        "its result is the graph after the joint passes, its argument the inference graph", stages=("joint_passed",
        "inference")),
    # compile_fx(inner_compile=) is public but would have to be passed by the user's backend.
    Row("torch._inductor.compile_fx", "compile_inner_whole=_compile_fx_inner", "record",
        "the inner compiler, with its keyword arguments and its result", stages=("forward", "backward")),
    # post_grad_custom_post_pass is public but belongs to the user.
    Row("torch._inductor.compile_fx", "recursive_post_grad_passes=_recursive_post_grad_passes", "record",
        "the graph after the post-grad passes", stages=("post_grad_forward", "post_grad_backward",
        "post_grad_inference")),
    # Backends made with aot_autograd() take compilers, but only from their author.
    Row("torch._functorch.aot_autograd", "aot_module_simplified", "record",
        "joint, forward, backward and inference graphs of AOT backends that are not Inductor"),
    # The rest says why a graph exists. TORCH_LOGS and TORCH_TRACE tell the same to a log, which would have to be
    # switched on and
    # makes torch build every payload; torch._dynamo.explain runs the program again. All but one were run on 2.11.0 too.
    # torch._dynamo.callback.on_compile_start tells no code, and outermost compiles only.
    Row("torch._dynamo.convert_frame", "has_tensor_in_frame", "record",
        "the code object about to be compiled, whose qualified name has the class"),
    # The same. Dynamo's own telemetry of one frame about to be compiled.
    Row("torch._dynamo.convert_frame", "signpost_event", "record", "function, file, line and compile id of each frame"),
    # torch._dynamo.utils.guard_failures has the texts of the same call, without compile ids.
    Row("torch._dynamo.convert_frame", "get_and_maybe_log_recompilation_reasons", "record",
        "the guards whose failure made a frame compile again"),
    # Only a log line and an exception that Dynamo catches tell it.
    Row("torch._dynamo.convert_frame", "exceeds_recompile_limit", "record",
        "that a frame is given up because it was compiled too often"),
    # torch._dynamo.utils.counters["graph_break"] counts reasons without lines.
    Row("torch._dynamo.symbolic_convert", "InstructionTranslatorBase.log_graph_break", "record",
        "graph breaks with their reason and user stack"),
    # CompilationMetrics.restart_reasons is a set without attempts, kept only for the last compiles.
    Row("torch._dynamo.exc", "RestartAnalysis.__init__", "record", "why Dynamo started a frame over"),
    # A user's own except clause sees it, where Dynamo does not suppress it.
    Row("torch._dynamo.convert_frame", "exception_handler", "record",
        "why a frame could not be compiled (fullgraph=True, unsupported code, a failing backend)"),
    # torch._dynamo.eval_frame.get_skip_reasons is as private, and fullgraph=True switches it on. 2.13.0; not in 2.11,
    # 2.12.
    Row("torch._dynamo.convert_frame", "CatchErrorsWrapper._handle_skip", "record", "frames that were left alone",
        "2.13-"),
    # DDPOptimizer keeps its buckets on an object that nobody can reach.
    Row("torch._dynamo.backends.distributed", "SubmodCompiler.compile_submod", "record",
        "the parts into which DDP cuts a graph"),
    # Compiled autograd has no public door at all. 2.13.0; 2.11.0 has the same names.
    Row("torch._dynamo.compiled_autograd", "compiled_autograd_on=_enable", "record",
        "why a backward was captured again by the program's compiled autograd"),
    Row("torch._dynamo.compiled_autograd", "AutogradCompilerInstance.log_compile_reasons", "record",
        "why a backward was captured again by the program's compiled autograd"),
    Row("torch._dynamo.compiled_autograd", "AutogradCompilerInstance.begin_capture", "record",
        "what became dynamic in a backward that was captured again"),
    Row("torch._dynamo.compiled_autograd", "AutogradCompilerInstance.create_graph_module", "record",
        "autograd nodes and hooks of a backward that the program's compiled autograd captured"),
)  # fmt: skip
"""What the recorder wraps: what each hook records, and the stages that cannot be recorded without it."""

WARM_MODULES = (
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.common",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.memory_planning",
    "torch._inductor.bounds",
    "torch._inductor.compiler_bisector",
    "torch._inductor.extern_node_serializer",
    "torch._inductor.hooks",
    "torch.fx.experimental.validator",
    "sympy.physics.units",
    "torch._dynamo.backends.common",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
    "torch._functorch.config",
    "torch._export.passes._node_metadata_hook",
)
"""Modules that a compile imports lazily and a fork server imports before it forks, in this order; without one, queries
are slower."""

CONFIGS = ("dynamo", "functorch", "inductor")
"""Configurations of torch: `dynamo_config` and so on are their modules."""

NAMES = Names((
    *HOOKS,
    # Every backward() and grad() calls the engine by this name, in one of these modules. Hooks see the gradients of one
    # value; nothing public sees a whole backward.
    Row("torch.autograd", "engine_call=_engine_run_backward", _BACKWARD),
    Row("torch.autograd.graph", "graph_engine_call=_engine_run_backward", _BACKWARD),
    # Modules that may have taken a hooked name before the recorder started.
    Row("torch._dynamo.utils", "same", "replay", "PyTorch's own comparison of eager, compiled and float64, for "
        "reports"),
    Row("torch._dynamo.backends.common", "common_aot_module_simplified=aot_module_simplified", "record"),
    Row("functorch.compile", "functorch_aot_module_simplified=aot_module_simplified", "record"),
    # What is looked at while a program is recorded. Nothing of it is imported for that.
    Row("torch._guards", "CompileContext TracingContext", "record", "graphs are not distinguished by compile ids"),
    Row("torch._dynamo.utils", "counters", "record", "graphs from a cache are not marked as such"),
    Row("torch._dynamo.convert_frame", "frame_compiles=FRAME_COMPILE_COUNTER", "record",
        "calls and tests that compile are not known as such"),
    Row("torch._functorch.aot_autograd", "SerializableAOTDispatchCompiler", "record",
        "graphs are not cached while recorded"),
    Row("torch.fx._lazy_graph_module", "LazyGraphModule=_LazyGraphModule", "record",
        "the first call of a graph is slower"),
    Row("torch._C", "DisableTorchFunction DisableAutocast=_DisableAutocast", "record",
        "the user's modes see our statistics"),
    Row("torch", "foreach_norm=_foreach_norm", "record"),
    # torch.compiler.disable is public, and would hide what the program's own code does inside ours too.
    Row("torch._C", "set_eval_frame=_dynamo.eval_frame.set_eval_frame "
        "set_code_exec_strategy=_dynamo.eval_frame.set_code_exec_strategy FrameAction=_dynamo.eval_frame._FrameAction "
        "FrameExecStrategy=_dynamo.eval_frame._FrameExecStrategy",
        "record", "Dynamo traces the recorder where a graph break leaves it at work"),

    # Settings: documented, but private by the name of their modules.
    Row("torch._inductor", "inductor_config=config list_mode_options metrics inductor_debug=debug", _COMPILE),
    Row("torch._functorch", "functorch_config=config", _COMPILE),
    Row("torch._dynamo", "dynamo_config=config", _COMPILE),

    # Fake tensors, nested values, dispatch modes: documented in part, in no public module.
    Row("torch._subclasses.fake_tensor", "is_fake", _COMPILE),
    Row("torch.utils._pytree", "tree_leaves tree_map", "every rung"),
    Row("torch._C._functorch", "transforms=get_dynamic_layer_stack_depth "
        "leave_transforms=pop_dynamic_layer_stack_and_undo_to_depth", "every rung"),
    Row("torch.utils._python_dispatch", "TorchDispatchMode", f"{_TRITON}, the rung lazy, dump --compiled-autograd"),
    Row("torch.utils._python_dispatch", "is_in_torch_dispatch_mode is_traceable_wrapper_subclass", _COMPILE),
    Row("torch._guards", "CompileContext TracingContext tracing compile_context", _COMPILE),
    Row("torch._dynamo.symbolic_convert", "TensorifyState", "replay of graphs with a float that Dynamo made a "
        "constant"),
    Row("torch._logging", "trace_structured", _COMPILE),

    # The whole path from a graph to code. torch.compile and torch._inductor.compile are public, do all of it at once,
    # and take no fake inputs.
    Row("torch._inductor.compile_fx", "get_input_idxs_to_check graph_returns_tuple handle_dynamo_export_graph "
        "make_graph_return_tuple partition_fn fake_tensor_prop create_compiler_config_extra get_cpp_wrapper_config "
        "get_cuda_device_context get_static_input_idxs is_tf32_warning_applicable maybe_disable_comprehensive_padding "
        "maybe_disable_graph_partition set_feature_use with_fresh_cache_if_config fx_compile_mode fx_compile_async "
        "fx_compile_progressive inductor_metrics_log post_grad_graphs_log pre_grad_graphs_log compile_log=log "
        "subgraph_names=_get_subgraph_names check_triton_bf16_support=_check_triton_bf16_support "
        "record_original_output_strides=_recursive_record_original_output_strides "
        "record_user_visible_output_idxs=_recursive_record_user_visible_output_idxs "
        "warn_tf32_disabled=_warn_tf32_disabled", _COMPILE),
    Row("torch._inductor.compile_fx", "cudagraph_annotation_context", _COMPILE, "no annotation turns CUDA graphs on",
        "2.13-"),
    Row("torch._inductor.compile_fx", "ConstantDecompTable=_ConstantDecompTable", _COMPILE,
        "a table has another cache key",
        "2.13-"),
    Row("torch._inductor.compile_fx", "compile_fx_forward compile_fx_backward", _TRITON),
    Row("torch._functorch.aot_autograd", "SerializableAOTDispatchCompiler aot_module_simplified make_boxed_func",
        _COMPILE),
    Row("torch._dynamo.backends.common", "aot_autograd", _COMPILE),
    Row("torch._dynamo.convert_frame", "compile_lock", _COMPILE),  # one backward is compiled at a time
    Row("torch._dynamo.compiled_autograd", "compiled_autograd_off=_disable", _COMPILE),
    Row("torch._dynamo.exc", "ShortenTraceback SkipFrame", _COMPILE),
    Row("torch._dynamo.logging", "get_step_logger", _COMPILE),
    Row("torch._dynamo.repro.after_aot", "save_graph_repro wrap_compiler_debug", _COMPILE),
    Row("torch._dynamo.utils", "CompileEventLogger chromium_event_timed compilation_time_metrics count_calls counters "
        "detect_fake_mode dynamo_timed flatten_graph_inputs get_inputs_devices get_metrics_context "
        "lazy_format_graph_code "
        "preserve_rng_state", _COMPILE),
    Row("torch._dispatch.python", "enable_python_dispatcher", _COMPILE),
    Row("torch.fx._lazy_graph_module", "LazyGraphModule=_LazyGraphModule use_lazy_graph_module=_use_lazy_graph_module",
        _COMPILE),
    Row("torch.fx.graph", "CodeGen PyTreeCodeGen=_PyTreeCodeGen", _COMPILE),
    Row("torch.fx.traceback", "get_graph_provenance_json preserve_node_meta", _COMPILE),
    Row("torch._export.non_strict_utils", "fakify_script_objects=_fakify_script_objects", _COMPILE),
    Row("torch._inductor.metrics", "CachedMetricsHelper", _COMPILE),
    Row("torch._inductor.debug", "DebugContext create_mapping_pre_post_grad_nodes dump_inductor_provenance_info "
        "log_collective_schedule log_runtime_and_tensor_meta kernel_stack_traces=_inductor_kernel_stack_trace "
        "reset_provenance_globals save_args_for_compile_fx_inner "
        "debug_tells_kernel=set_kernel_post_grad_provenance_tracing", _COMPILE),
    Row("torch._inductor.exc", "InductorError", _COMPILE),
    Row("torch._inductor.compiler_bisector", "CompilerBisector", f"{_COMPILE}, bisect"),  # its public face is a command
    Row("torch._inductor.decomposition", "select_decomp_table", _COMPILE),
    Row("torch._inductor.fx_passes.pre_grad", "pre_grad_passes", _COMPILE),
    Row("torch._inductor.fx_passes.joint_graph", "joint_graph_passes", _COMPILE),
    Row("torch._inductor.fx_passes.post_grad", "post_grad_passes view_to_reshape", _COMPILE),
    Row("torch._inductor.constant_folding", "constant_fold", _COMPILE),
    Row("torch._inductor.freezing", "convert_conv_weights_to_channels_last discard_traced_gm_params "
        "invalidate_eager_modules "
        "replace_params_with_constants", f"{_COMPILE}, where the setting freezing is on"),
    Row("torch._inductor.freezing_utils", "enter_freezing record_has_frozen_params",
        f"{_COMPILE}, where the setting freezing is on"),
    Row("torch._inductor.fx_passes.freezing_patterns", "freezing_passes", f"{_COMPILE}, where the setting freezing "
        "is on"),
    Row("torch._functorch.compile_utils", "fx_graph_cse", f"{_COMPILE}, where the setting freezing is on"),
    Row("torch._inductor.virtualized", "V", _COMPILE),
    Row("torch._inductor.graph", "GraphLowering log_module_code", _COMPILE),
    Row("torch._inductor.graph", "GraphLowering._compile_to_module_lines", _TRITON),
    Row("torch._inductor.ir", "ExternKernel IRNode", _COMPILE),
    Row("torch._inductor.ir", "UserDefinedTritonKernel", _COMPILE, "a user's Triton kernel is shown as a library call"),
    Row("torch.fx.experimental.symbolic_shapes", "SymExprPrinter free_unbacked_symbols", _COMPILE),
    Row("torch._inductor.distributed_autotune", "distributed_autotune_context=graph_context", _COMPILE,
        "kernels are not timed on many machines at once"),
    Row("torch._inductor.autotune_process", "AutotuneProcessPool use_pipelined_autotuning", _COMPILE,
        "no pool of processes is started before it is needed"),
    Row("torch._inductor.async_compile", "AsyncCompile CompiledTritonKernels", _COMPILE),
    Row("torch._inductor.codegen.common", "get_wrapper_codegen_for_device init_backend_registration", _COMPILE),
    Row("torch._inductor.codegen.cpp", "cpp_tells_kernel=set_kernel_post_grad_provenance_tracing", "compile, bisect"),
    Row("torch._inductor.codegen.triton", "triton_tells_kernel=set_kernel_post_grad_provenance_tracing",
        "compile, bisect"),
    Row("torch._inductor.cpp_builder", "get_cpp_compiler", _COMPILE),
    Row("torch._inductor.codecache", "AotCodeCompiler FxGraphCache FxGraphCache._save_graph code_hash output_code_log",
        _COMPILE),
    Row("torch._inductor.triton_bundler", "TritonBundler", _COMPILE),
    Row("torch._inductor.output_code", "CompiledAOTI CompiledFxGraph CompiledFxGraphConstantsWithGm OutputCode "
        "set_tracing_context_output_strides", _COMPILE),
    Row("torch._inductor.utils", "BoxedBool ValueWithLineMap any_is_symbolic clone_preserve_strides count_tangents "
        "get_all_devices get_first_incompatible_cudagraph_node is_gpu num_fw_fixed_arguments output_node "
        "shape_env_from_inputs should_use_remote_fx_graph_cache", _COMPILE),
    Row("torch._inductor.utils", "get_static_bw_input_idxs", _COMPILE, seen="2.13-"),
    Row("torch._higher_order_ops.wrap", "inductor_compiled_code", _COMPILE),
    Row("torch._higher_order_ops.wrap", "InductorCompiledCallable", _COMPILE, "fake values do not see the graph",
        "2.13-"),
    Row("torch.fx._graph_pickler", "GraphPickler", _COMPILE),

    # Single passes, where they are called from. `config.disabled_passes` is one for all stages.
    Row("torch.fx.passes.graph_transform_observer", "GraphTransformObserver", _PASSES),
    Row("torch._inductor.pattern_matcher", "PatternEntry PatternMatcherPass", _PASSES),
    Row("torch._inductor.fx_utils", "FakeTensorUpdater.incremental_update", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.pre_grad", "fuse_conv_bn linear_permute_fusion numpy_compat_normalization "
        "permute_linear_fusion permute_matmul_fusion pre_grad_sort=stable_topological_sort remove_identity "
        "sink_cat_after_pointwise", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.pre_grad", "pass_execution_and_save", _PASSES),
    Row("torch._inductor.fx_passes.quantization", "concat_linear_woq_int4 quant_lift_up", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.joint_graph", "canonicalize_aten_ir_passes joint_sort=stable_topological_sort "
        "replace_random_passes", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.joint_graph", "early_patterns", _PASSES),
    Row("torch._inductor.fx_passes.replace_random", "fuse_seed_creation_pass", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.replace_random", "fuse_offset_creation_pass", _PASSES, _UNSEEN, "2.13-"),
    Row("torch._inductor.fx_passes.post_grad", "micro_pipeline_tp_pass post_grad_sort=stable_topological_sort", _PASSES,
        _UNSEEN),
    Row("torch._inductor.fx_passes.post_grad", "remove_fsdp2_unsharded_param_graph_input_usage", _PASSES, _UNSEEN,
        "-2.11"),
    Row("torch._inductor.fx_passes.post_grad", "post_grad_lazy_init=lazy_init", _PASSES),
    # Under fallback_random draws stay in eager's order from 2.13 on; before, we keep them there by the same functions.
    Row("torch._inductor.fx_passes.post_grad", "reorder_for_locality", _INDUCTOR),
    Row("torch._inductor.fx_passes.post_grad", "chain_random_ops=_chain_random_ops_for_ordering", _INDUCTOR,
        "several draws of a graph are put in eager's order by us", "2.13-"),
    Row("torch._inductor.fx_passes.control_dependencies", "preserve_node_ordering", _INDUCTOR),
    Row("torch._inductor.fx_passes.b2b_gemm", "B2B_GEMM_PASS", _PASSES),
    Row("torch._inductor.fx_passes.split_cat", "PRE_GRAD_PATTERNS", _PASSES),
    Row("torch._inductor.fx_passes.group_batch_fusion", "POST_GRAD_FUSIONS PRE_GRAD_FUSIONS apply_group_batch_fusion "
        "group_batch_fusion_passes", _PASSES),
    Row("torch._inductor.fx_passes.auto_chunker", "auto_chunk=chunk", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.mkldnn_fusion", "grouped_gemm_pass", _PASSES, _UNSEEN),
    Row("torch._inductor.fx_passes.spmd_check", "spmd_check", _PASSES, _UNSEEN, "2.13-"),

    # A graph at the stage where it was recorded, in torch's own hands. What AOTAutograd works out between is public
    # nowhere.
    Row("torch._inductor.compile_fx", "compile_fx compile_fx_inner "
        "recursive_joint_graph_passes=_recursive_joint_graph_passes", _INDUCTOR),
    Row("torch._inductor.compile_fx", "compile_inner_whole=_compile_fx_inner "
        "recursive_post_grad_passes=_recursive_post_grad_passes", "replay, triage, bisect"),
    Row("torch._dynamo.source", "LocalSource", _INDUCTOR),
    Row("torch._guards", "CompileId", _INDUCTOR),
    Row("torch.fx.passes.fake_tensor_prop", "FakeTensorProp", _INDUCTOR),
    Row("torch.fx.experimental.proxy_tensor", "make_fx", _INDUCTOR),
    Row("torch._functorch._aot_autograd.graph_compile", "collect_fw_donated_buffer_idxs", _INDUCTOR,
        "no memory is reused"),
    Row("torch._higher_order_ops.passes.inline_invoke_subgraph", "inline_invoke_subgraph "
        "inline_single_use_invoke_subgraph",
        _INDUCTOR, "regions that are called once stay apart, as there", "2.13-"),
    Row("torch._inductor.graph", "GraphLowering.run_node", "inductor_nofuse"),
    Row("torch._inductor.ir", "StorageBox TensorBox", "inductor_nofuse"),
    Row("torch._inductor.scheduler", "Scheduler.fuse_nodes", "inductor_nofuse"),
    Row("torch.fx.passes.graph_transform_observer", "GraphTransformObserver._check_disable_pass", "inductor_nofuse"),
    Row("torch._inductor.codegen.triton", "TritonOverrides._can_use_4x_random", _INDUCTOR, "kernels draw singly",
        "2.13-"),
    Row("torch._inductor.lowering", "lowerings", "undecomposed"),
    Row("torch._C", "has_kernel=_dispatch_has_kernel_for_dispatch_key", "replay on a machine without a GPU"),
    Row("torch._C._distributed_c10d", "register_process_group=_register_process_group "
        "unregister_process_group=_unregister_process_group", "replay of graphs with collectives"),

    # torch._inductor.aoti_compile_and_package is public, but starts from an exported program.
    Row("torch._inductor", "aot_compile", "aot_inductor"),
    Row("torch._export", "aot_load", "aot_inductor"),

    # What torch does once in a process, done before a fork. Nothing public does any of it.
    Row("torch._inductor.codecache", "HEADER_DIR=_HEADER_DIR HEADER_LOCK_DIR=_HEADER_LOCK_DIR "
        "precompile_header=_precompile_header", _FORK, "headers lie in the user's cache"),
    Row("torch._inductor.codecache", "triton_key", _FORK, "first queries are slower", "2.13-"),
    Row("torch._inductor.cpu_vec_isa", "VecISA.check_build", f"{_FORK}, compile", "first queries are slower"),
    Row("torch._inductor.cpu_vec_isa", "pick_vec_isa", _FORK),
    Row("torch._inductor.cpu_vec_isa", "supported_vec_isa_list x86_isa_checker", _FORK, "the first query of all is "
        "slower"),
    Row("torch._inductor.cpp_builder", "get_compiler_version_info", _FORK),
    Row("torch._inductor.decomposition", "fast_random_decomps", f"{_FORK}, bisect"),

    # One application switched off: the public bisector is a command, and works through files.
    Row("torch._inductor.compiler_bisector", "BACKENDS BisectSubsystem ConfigChange", "bisect"),
    Row("torch._inductor.pattern_matcher", "FailedMatch MultiOutputPattern PatternExpr", "bisect"),
    Row("torch._inductor.lowering", "make_fallback", "bisect"),
    Row("torch._inductor.decomposition", "decompositions", "bisect"),
    Row("torch._library.custom_ops", "custom_ops=OPDEFS", "report of graphs with operators of the user's own"),

    # The metadata checker, and graphdbg's backends. functorch.compile has some of them, typed as from a private module.
    Row("torch.utils._pytree", "key_get", "debug_nop and check"),
    Row("torch.multiprocessing.reductions", "StorageWeakRef", "debug_nop, check and dump --compiled-autograd"),
    Row("torch._C._functorch", "is_functorch_wrapped_tensor", "debug_nop and check",
        "values inside vmap and grad are compared"),
    Row("torch._C", "is_alias_of=_is_alias_of", "debug_nop and check", "storages are compared in Python, which is "
        "slower"),
    Row("torch._functorch.aot_autograd", "aot_function get_aot_graph_name", _BACKENDS),
    Row("torch._functorch.partitioners", "default_partition min_cut_rematerialization_partition", _BACKENDS),
    Row("torch._decomp", "get_decompositions", _BACKENDS),
    Row("torch._prims.rng_prims", "run_and_save_rng_state run_with_rng_state", _SCRIPT,
        "random checkpoints are refused"),
    Row("torch._higher_order_ops.auto_functionalize", "auto_functionalized=auto_functionalized_v2", _SCRIPT,
        "operators that change their arguments are refused"),
    Row("torch._C", "remove_mutation=_jit_pass_remove_mutation set_jit_autocast=_jit_set_autocast_mode", _SCRIPT),
    Row("torch._C", "lazy_ts=_lazy_ts_backend", _LAZY, "it says that this torch has no lazy tensors"),
    Row("torch._C", "start_lazy_backend=_lazy_ts_backend._init run_lazy_graph=_lazy_ts_backend._run_cached_graph "
        "lazy_device_data=_lazy_ts_backend._get_tensors_ts_device_data_node lazy_counter=_lazy._counter_value "
        "lazy_counters=_lazy._counter_names lazy_tensor_id=_lazy._get_tensor_id lazy_graph_hash=_lazy._get_graph_hash "
        "lazy_text=_lazy._get_tensors_text lazy_sync=_lazy._sync_multi", _LAZY),
    Row("torch", "is_functional_tensor=_is_functional_tensor to_functional_tensor=_to_functional_tensor "
        "functional_sync=_sync",
        _LAZY),

    # Graphs of a module without compiling it. torch.export traces no backward and refuses much of what torch.compile
    # takes; make_fx knows neither mutations nor aliases.
    Row("torch._functorch.aot_autograd", "create_aot_state prepare_aot_module_simplified", _CAPTURE),
    Row("torch._functorch._aot_autograd.descriptors", "BufferAOTInput InputMutationAOTOutput PlainAOTOutput", _CAPTURE),
    Row("torch._functorch._aot_autograd.functional_utils", "assert_functional_graph "
        "propagate_input_mutation_stacktraces", _CAPTURE),
    Row("torch._functorch._aot_autograd.graph_capture", "create_graph=_create_graph "
        "detach_and_copy_item_memo=_detach_and_copy_item_memo", _CAPTURE),
    Row("torch._functorch._aot_autograd.graph_capture", "assign_backward_streams assign_epilogue_copy_streams "
        "insert_backward_syncs sync_deallocations populate_fw_metadata_with_stream_indices", _CAPTURE,
        "streams are not ordered"),
    Row("torch._functorch._aot_autograd.graph_capture", "wrap_all_sync_nodes_with_control_deps "
        "extract_tangent_source_stack_traces=_extract_tangent_source_stack_traces", _CAPTURE, "streams are not ordered",
        "2.13-"),
    Row("torch._functorch._aot_autograd.graph_capture_wrappers", "aot_dispatch_subclass create_functionalized_fn "
        "create_joint "
        "fn_input_mutations_to_outputs fn_prepped_for_autograd handle_effect_tokens_fn", _CAPTURE),
    Row("torch._functorch._aot_autograd.graph_compile", "wrappers_for_dispatch=_create_wrappers_for_dispatch",
        _CAPTURE),
    Row("torch._functorch._aot_autograd.runtime_wrappers", "pre_compile", _CAPTURE),
    Row("torch._functorch._aot_autograd.schemas", "OutputType", _CAPTURE),
    Row("torch._functorch._aot_autograd.utils", "copy_fwd_metadata_to_bw_nodes simple_wraps unlift_tokens", _CAPTURE),
    Row("torch._dynamo.utils", "assert_no_fake_params_or_buffers", _CAPTURE),
    Row("torch._dynamo.repro", "repro_after_aot=after_aot repro_after_dynamo=after_dynamo repro_aoti=aoti", "import"),
    Row("torch._dynamo.debug_utils", "InputReader", "import"),
    Row("torch._subclasses.functional_tensor", "FunctionalTensor", f"{_CAPTURE}, {_BACKWARD}"),
    Row("torch.fx.experimental.proxy_tensor", "get_proxy_mode get_proxy_slot", _CAPTURE),
    Row("torch.fx.experimental.symbolic_shapes", "DimDynamic StatelessSymbolicContext no_guards=_suppress_guards",
        f"{_CAPTURE}, {_BACKWARD}"),
    Row("torch.utils._pytree", "tree_flatten tree_unflatten tree_map_only", f"{_CAPTURE}, {_BACKWARD}"),
    Row("torch._C", "current_autograd_node=_current_autograd_node", f"{_CAPTURE}, {_BACKWARD}"),
    Row("torch.autograd", "autograd_sequence_number=_get_sequence_nr", _CAPTURE),

    # A backward as a graph. torch._dynamo.config.compiled_autograd only acts inside torch.compile.
    Row("torch._dynamo", "compiled_autograd", _BACKWARD),
    Row("torch._dynamo.compiled_autograd", "AutogradCompilerInstance compiled_autograd_enabled extract_bw_module "
        "in_compiled_autograd_region",
        _BACKWARD),
    Row("torch._C", "set_autograd_compiler=_dynamo.compiled_autograd.set_autograd_compiler "
        "set_verbose_logger=_dynamo.compiled_autograd.set_verbose_logger "
        "peek_interpreter_stack=_functorch.peek_interpreter_stack", _BACKWARD),
    Row("torch._dynamo.eval_frame", "eval_frame_stance=_stance", _BACKWARD),
    Row("torch._dynamo.external_utils", "call_accumulate_grad", _BACKWARD),
    Row("torch._dynamo.external_utils", "unwrap_maybe_dynamic_int", "record"),
    Row("torch._inductor", "cudagraph_trees", _BACKWARD),
    Row("torch._subclasses.functional_tensor", "FunctionalTensorMode", _BACKWARD),
    Row("torch.fx.experimental.proxy_tensor", "ProxyTorchDispatchMode", _BACKWARD),
    # The calls of what a program gave to torch.compile, run beside it.
    Row("torch._dynamo.eval_frame", "given_to_dynamo=_TorchDynamoContext", _BESIDE),
    # torch.autograd.graph has hooks of nodes and tensors, and nothing that is called when a backward has ended.
    Row("torch.autograd.variable", "autograd_engine=Variable._execution_engine", _BESIDE),
    Row("torch._dynamo.backends.registry", "lookup_backend", _BESIDE),
    # No public way to see or restore them.
    Row("torch._C", "dispatch_keys_kept=_ForceDispatchKeyGuard dispatch_keys_on=_dispatch_tls_local_include_set "
        "dispatch_keys_off=_dispatch_tls_local_exclude_set", _BESIDE,
        "after a compile that fails in a dispatch mode, nothing else may run"),
    # torch.compiler.is_compiling() reads it.
    Row("torch.compiler", "is_compiling_flag=_is_compiling_flag", _BESIDE),
    # torch.compile has isolate_recompiles for it, from 2.12 on.
    Row("torch._dynamo.convert_frame", "compute_cache_size", _BESIDE),
    Row("torch._C", "top_saved_tensors_hooks=_autograd._top_saved_tensors_default_hooks "
        "current_graph_task_id=_current_graph_task_id", _BESIDE),
    # no_sync() keeps gradients apart, and broadcasts buffers all the same.
    Row("torch.nn.parallel", "ddp_before=DistributedDataParallel._pre_forward "
        "ddp_after=DistributedDataParallel._post_forward", _BESIDE),
    Row("torch.distributed", "group_sequence_number=ProcessGroup._get_sequence_number_for_group", _BESIDE),
    Row("torch.utils._python_dispatch", "dispatch_mode_stack=_get_current_dispatch_mode_stack", _BACKWARD),

    # CUDA graphs: the public ones record a function, not what Inductor made.
    Row("torch._inductor.cudagraph_utils", "PlaceholderInfo check_lowering_disable_cudagraph "
        "log_cudagraph_skip_and_bump_counter", _CUDAGRAPHS),
    Row("torch._inductor.cudagraph_trees", "cudagraphify_impl get_manager", _CUDAGRAPHS),
    Row("torch._inductor.utils", "CUDAGraphWrapperMetadata FORBIDDEN_CUDAGRAPH_OPS "
        "customized_partition_wrapper=_unstable_customized_partition_wrapper", _CUDAGRAPHS),
    Row("torch", "foreach_copy=_foreach_copy_", _CUDAGRAPHS),
    Row("torch._C", "clear_cublas_workspaces=_cuda_clearCublasWorkspaces", _CUDAGRAPHS, "workspaces keep their memory",
        "CUDA"),

    # Ahead of time, from a plain graph; torch._inductor.aoti_compile_and_package is public and takes exported programs.
    Row("torch._functorch.aot_autograd", "aot_export_module", _AHEAD),
    Row("torch._functorch._aot_autograd.subclass_parametrization", "unwrap_tensor_subclass_parameters", _AHEAD),
    Row("torch._export.utils", "compiling_state_context=_compiling_state_context "
        "detect_fake_mode_from_gm=_detect_fake_mode_from_gm", _AHEAD),
    Row("torch._inductor.compile_fx", "split_const_gm unlift_graph=_unlift_graph", _AHEAD),
    Row("torch._inductor.package", "package_aoti", _AHEAD),
    Row("torch._inductor.utils", "is_valid_aoti_model_name maybe_aoti_standalone_config", _AHEAD),
    Row("torch._inductor.runtime.runtime_utils", "cache_dir", _AHEAD),
    Row("torch._library.fake_class_registry", "maybe_to_fake_obj", _AHEAD),
    Row("torch._library.opaque_object", "is_opaque_type", _AHEAD),
    Row("torch._C", "DisableAutocast=_DisableAutocast is_any_autocast_enabled=_is_any_autocast_enabled", _AHEAD),

    # Where Inductor asks for a GPU while it writes code. Nothing of it can be configured.
    Row("torch", "C=_C", _TRITON),
    Row("torch._C", "dynamo_guards=_dynamo.guards", _TRITON),
    Row("torch._C", "conv_layout=_conv_determine_backend_memory_format select_conv_backend=_select_conv_backend",
        _TRITON,
        "convolutions get the layout that the CPU gives them"),
    Row("torch.cuda", "cuda_lazy_init=_lazy_init", _TRITON),
    Row("torch._dynamo.device_interface", "CudaInterface device_interfaces get_interface_for_device", _TRITON),
    Row("torch._inductor.runtime", "triton_helpers", _TRITON),
    Row("torch._inductor.runtime.triton_heuristics", "StaticTritonCompileResult", _TRITON,
        "Triton launches as it does"),
    Row("torch._inductor.select_algorithm", "AlgorithmSelectorCache TritonTemplateCaller", _TRITON),
    # Its answers are remembered, and those caches have no public handle.
    Row("torch.utils._triton", "has_triton has_triton_package has_triton_tma has_triton_experimental_host_tma "
        "has_triton_tensor_descriptor_host_tma has_triton_tma_device has_triton_stable_tma_api triton_backend "
        "triton_hash_with_backend", _TRITON, _OLD_ANSWER),
    Row("torch._inductor.utils", "get_gpu_type get_gpu_dram_gbps get_gpu_shared_memory get_max_num_sms is_big_gpu "
        "get_device_tflops get_num_sms can_use_tma", _TRITON, _OLD_ANSWER),
    Row("torch._inductor.runtime.hints", "DeviceProperties.create", _TRITON, _OLD_ANSWER),
    Row("torch._inductor.fx_passes.joint_graph", "joint_lazy_init=lazy_init", _INDUCTOR,
        "they trace patterns for the device"),
    Row("torch._inductor.codecache", "codecache_get_cpp_compiler=get_cpp_compiler", _TRITON, _OLD_ANSWER, "2.13-"),
), BELOW)  # fmt: skip
