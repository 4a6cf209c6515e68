# A program of the random tests; `random_programs --replay FILE` runs it.
#! name = "npu256t"
#! seed 5014
#! latency 1
#! pressure 0
#! batch = 1
#! block_in = 16
#! block_out = 16
#! inp_bytes = 32768
#! wgt_bytes = 262144
#! acc_bytes = 131072
#! out_bytes = 32768
#! param_bytes = 16384
#! table_count = 16
#! second_lanes = 4
#! row_lanes = 4
#! axi_bytes = 8
#! load_queue = 16
#! gemm_queue = 16
#! alu_queue = 16
#! store_queue = 16
#! reads_in_flight = 32
#! writes_in_flight = 16
#! memory_parity = 0
#! packed_weights = 0
load length=2485 sp_addr=18634
row_reduce tail=11 src=inp operation=sum_exp signal
finish
