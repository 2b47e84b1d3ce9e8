"""Names of config.json that model libraries write for any language model; a head that has them is not surprising."""

from __future__ import annotations

STANDARD_KEYS = frozenset(
    """
    _name_or_path activation activation_function add_cross_attention architectures architectures_config
    attention_bias attention_dropout attention_k_eq_v attention_multiplier attention_other_setting
    attn_implementation attn_logit_softcapping attn_output_gate attn_pdrop audio_config auto_map aux_loss_alpha bias
    bos_token_id cache_implementation chunk_size_feed_forward cls_token_id compression_config decoder_sparse_step
    decoder_start_token_id do_sample dtype embd_dropout embd_pdrop embedding_multiplier enable_moe_block
    eos_token_id ep_size ffn_hidden_size final_logit_softcapping first_k_dense_replace full_attention_interval
    head_dim hidden_act hidden_activation hidden_dropout hidden_size hidden_size_per_layer_input hidden_sizes
    id2label image_token_id initializer_range intermediate_size is_causal is_encoder_decoder kv_lora_rank label2id
    language_config layer_norm_eps layer_norm_epsilon layer_types license linear_conv_kernel_dim linear_key_head_dim
    linear_num_key_heads linear_num_value_heads linear_value_head_dim llm_config logit_scale logits_scaling
    max_length max_position_embeddings max_window_layers min_length mlp_bias mlp_only_layers model_max_length
    model_type moe_intermediate_size moe_layer_freq mrope_section multi_query n_embd n_group n_head n_inner n_layer
    n_positions n_routed_experts n_shared_experts name_or_path new_decoder_architecture no_bias norm_eps
    norm_topk_prob num_attention_groups num_attention_heads num_experts num_experts_per_tok num_experts_shared
    num_hidden_layers num_key_value_heads num_kv_heads num_kv_shared_layers num_ln_in_parallel_attn
    num_local_experts num_nextn_predict_layers original_max_position_embeddings output_attentions
    output_hidden_states output_router_logits pad_token_id parallel_attn partial_rotary_factor per_layer_config
    pretraining_tp problem_type pruned_heads q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim qkv_bias
    quantization_config query_pre_attn_scalar resid_pdrop residual_multiplier return_dict rms_norm_eps
    rope_interleave rope_local_base_freq rope_parameters rope_scaling rope_theta rotary_dim routed_scaling_factor
    router_aux_loss_coef router_jitter_noise scale_attn_by_inverse_layer_idx scale_attn_weights scoring_func
    sep_token_id seq_aux seq_length shared_expert_intermediate_size sliding_window sliding_window_pattern
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj swiglu_alpha
    swiglu_limit temperature text_config tie_weights tie_word_embeddings tokenizer_class top_k top_k_experts top_p
    topk_group topk_method torch_dtype torchscript transformers_version unk_token_id use_bias
    use_bidirectional_attention use_cache use_double_wide_mlp use_flash_attention use_mla use_mrope
    use_parallel_residual use_qk_norm use_sink_attention use_sliding_window v_head_dim video_token_id vision_config
    vision_end_token_id vision_start_token_id vocab_size vocab_size_per_layer_input
    """.split()
)
