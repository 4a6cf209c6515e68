// SPDX-License-Identifier: Apache-2.0
// The rules of isa/semantics.md that concern one instruction and no memory: illegal_opcode and illegal_operand. The
// generated package knows reserved bits and enumerations; here stand the rules between fields. The package's function
// wants an answer for every instruction, so that one without rules here does not elaborate. The answers of all
// instructions leave side by side, since a choice among them by the opcode would stand behind the longest of them.
//
// Latency: combinational. Without check_i the answer means nothing, and nothing is computed.
module tsr_legal #(
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8,
  parameter int unsigned RowLanes = 0,
  parameter int unsigned AxiBytes = 8,
  parameter int unsigned PackedWeights = 0,
  parameter int unsigned Cores = 1
) (
  input  logic         check_i,
  input  logic [511:0] word_i,
  output logic         opcode_bad_o,  // illegal_opcode, unless the word is an illegal_operand
  output logic [tsr_isa_pkg::Instructions-1:0] operand_bad_o  // illegal_operand, a bit each instruction: one at most
);

  localparam int unsigned MaxTaps = BlockIn == 8 ? 6 : BlockIn == 16 ? 9 : BlockIn < 8 ? BlockIn : 16;
  localparam int unsigned LaneGroups = BlockIn > BlockOut ? BlockIn / BlockOut : BlockOut / BlockIn;

  tsr_isa_pkg::fence_t fence;
  tsr_isa_pkg::load_t load;
  tsr_isa_pkg::store_t store;
  tsr_isa_pkg::gemm_t gemm;
  tsr_isa_pkg::alu_t alu;
  assign fence = word_i;
  assign load = word_i;
  assign store = word_i;
  assign gemm = word_i;
  assign alu = word_i;

  // A packed LOAD: entries of WGT in the scratchpad, beats in DRAM.
  localparam int unsigned PackedHeader = AxiBytes > BlockOut / 2 ? AxiBytes : BlockOut / 2;
  localparam int unsigned PackedLength = PackedHeader + BlockIn * BlockOut / 2;
  localparam int unsigned EntryBits = $clog2(BlockIn * BlockOut);
  localparam int unsigned BeatBits = $clog2(AxiBytes);

  logic finish_bad, fence_bad, transfer_bad, load_bad, store_bad, extents_bad, gemm_bad, alu_bad;
  assign finish_bad = check_i && load.header.signal;

  // What a FENCE says to other cores.
  always_comb begin
    fence_bad = 1'b0;
    if (check_i) begin
      if (Cores == 1) begin
        fence_bad = fence.publish || fence.await || fence.await_core != '0 || fence.await_count != '0;
      end else begin
        if (fence.publish && fence.engine != 2'(tsr_isa_pkg::EngineStore)) fence_bad = 1'b1;
        if (!fence.await ? fence.await_core != '0 || fence.await_count != '0
                          : 32'(fence.await_core) >= Cores || (fence.engine != 2'(tsr_isa_pkg::EngineStore) &&
                                                               fence.engine != 2'(tsr_isa_pkg::EngineLoad)))
          fence_bad = 1'b1;
      end
    end
  end

  // LOAD and STORE share the places of length and extents.
  always_comb begin
    transfer_bad = 1'b0;
    load_bad = 1'b0;
    store_bad = 1'b0;
    if (check_i) begin
      transfer_bad = load.length == '0;
      for (int unsigned k = 0; k < 4; k++) begin
        if (load.extent[k] == '0) transfer_bad = 1'b1;
      end
      load_bad = transfer_bad;
      for (int unsigned k = 0; k < 2; k++) begin
        if ({4'd0, {1'b0, load.pad_before[k]} + {1'b0, load.pad_after[k]}} > {1'b0, load.extent[k]})
          load_bad = 1'b1;
      end
      if (load.fill && (load.pad_before != '0 || load.pad_after != '0 || load.base != '0 || load.dram_offset != '0 ||
                        load.dram_stride != '0))
        load_bad = 1'b1;
      if (load.packed_) begin
        if (PackedWeights == 0 || load.space != 3'(tsr_isa_pkg::SpaceWgt) || load.fill || load.pad_before != '0 ||
            load.pad_after != '0 || load.pad_value != '0 || load.length != 16'(PackedLength) ||
            load.sp_addr[EntryBits-1:0] != '0 || load.dram_offset[BeatBits-1:0] != '0)
          load_bad = 1'b1;
        for (int unsigned k = 0; k < 4; k++) begin
          if (load.sp_stride[k][EntryBits-1:0] != '0 || load.dram_stride[k][BeatBits-1:0] != '0) load_bad = 1'b1;
        end
      end
      store_bad = transfer_bad || (store.space != tsr_isa_pkg::SpaceOut && store.space != tsr_isa_pkg::SpaceAcc);
    end
  end

  // GEMM and ALU share the place of the extents.
  always_comb begin
    extents_bad = 1'b0;
    if (check_i) begin
      for (int unsigned k = 0; k < 6; k++) begin
        if (gemm.extent[k] == '0) extents_bad = 1'b1;
      end
    end
  end

  logic [11:0] taps_outer, taps_inner;
  logic taps_bad;  // their product is above MaxTaps
  always_comb begin
    taps_inner = '0;
    taps_outer = '0;
    taps_bad = 1'b0;
    gemm_bad = 1'b0;
    if (check_i) begin
      taps_inner = gemm.extent[5];
      taps_outer = gemm.reduce >= 3'd2 ? gemm.extent[4] : 12'd1;
      taps_bad = 1'b1;
      for (int unsigned k = 1; k <= MaxTaps; k++) begin
        if (taps_outer == 12'(k) && taps_inner <= 12'(MaxTaps / k)) taps_bad = 1'b0;
      end
      gemm_bad = extents_bad || gemm.reduce > 3'd6;
      // A zero point of its byte type: unsigned needs bit 8 clear, signed needs bits 8 and 7 equal.
      if (gemm.inp_unsigned ? gemm.inp_zero[8] : gemm.inp_zero[8] != gemm.inp_zero[7]) gemm_bad = 1'b1;
      if (gemm.wgt_unsigned ? gemm.wgt_zero[8] : gemm.wgt_zero[8] != gemm.wgt_zero[7]) gemm_bad = 1'b1;
      for (int unsigned k = 0; k < 6; k++) begin
        if (3'(6 - k) <= gemm.reduce && gemm.acc_stride[k] != '0) gemm_bad = 1'b1;
      end
      if (gemm.mode == 2'(tsr_isa_pkg::GemmModeDense)) begin
        if (gemm.lane != '0) gemm_bad = 1'b1;
      end else begin
        if (gemm.reduce == '0 || gemm.wgt_stride[5] != '0) gemm_bad = 1'b1;
        if (gemm.reduce >= 3'd2 && gemm.wgt_stride[4] != '0) gemm_bad = 1'b1;
        if (taps_bad) gemm_bad = 1'b1;
        if (gemm.wgt_unsigned || gemm.wgt_zero != '0) gemm_bad = 1'b1;
        if ({1'b0, gemm.lane} >= 6'(LaneGroups)) gemm_bad = 1'b1;
      end
    end
  end

  logic to_acc, has_second;
  always_comb begin
    to_acc = 1'b0;
    has_second = 1'b0;
    alu_bad = 1'b0;
    if (check_i) begin
      to_acc = alu.dst == 2'(tsr_isa_pkg::AluSpaceAcc);
      has_second = alu.second_op != 2'(tsr_isa_pkg::SecondOpNone);
      alu_bad = extents_bad || alu.reduce > 3'd6;
      for (int unsigned k = 0; k < 6; k++) begin
        if (3'(6 - k) <= alu.reduce && (alu.dst_stride[k] != '0 || alu.second_stride[k] != '0))
          alu_bad = 1'b1;
      end
      if (alu.reduce == '0 && alu.reduce_op != 1'(tsr_isa_pkg::ReduceOpSum)) alu_bad = 1'b1;
      if (alu.param_loop != 3'd7 && {1'b0, alu.param_loop} + {1'b0, alu.reduce} >= 4'd6) alu_bad = 1'b1;
      if (BlockIn != BlockOut &&
          (alu.src == 2'(tsr_isa_pkg::AluSpaceInp) || alu.dst == 2'(tsr_isa_pkg::AluSpaceInp)))
        alu_bad = 1'b1;
      if (alu.src == 2'(tsr_isa_pkg::AluSpaceAcc) && alu.src_unsigned) alu_bad = 1'b1;
      if (to_acc && (alu.table_enable || has_second || alu.second_table_enable)) alu_bad = 1'b1;
      if ($signed(alu.low) > $signed(alu.high)) alu_bad = 1'b1;
      if (!alu.convert) begin
        if (alu.param_addr != '0 || alu.param_loop != 3'd7) alu_bad = 1'b1;
        if (to_acc && (alu.low != '0 || alu.high != '0 || alu.out_zero != '0)) alu_bad = 1'b1;
      end
      if (!alu.table_enable && (alu.table_ != '0 || alu.table_unsigned)) alu_bad = 1'b1;
      if (!alu.second_table_enable && alu.second_table != '0) alu_bad = 1'b1;
      if (alu.second_table_enable && !has_second) alu_bad = 1'b1;
      if (!has_second && (alu.second_addr != '0 || alu.second_stride != '0 || alu.second_unsigned || alu.second_swap ||
                          alu.constant_addr != '0))
        alu_bad = 1'b1;
    end
  end

  // Of both instructions of rows the extents, the source, the row and the opcode stand at the same places.
  tsr_isa_pkg::row_reduce_t reduce;
  tsr_isa_pkg::row_map_t map;
  logic row_reduce_bad, row_map_bad, rows_bad, rounds, no_moments, typed;
  assign reduce = word_i;
  assign map = word_i;
  always_comb begin
    rows_bad = 1'b0;
    row_reduce_bad = 1'b0;
    row_map_bad = 1'b0;
    no_moments = 1'b0;
    typed = 1'b0;
    rounds = 1'b0;
    if (check_i && RowLanes != 0) begin
      typed = map.src_unsigned ? !map.zero[8] : map.zero[8] == map.zero[7];
      rows_bad = extents_bad || map.row > 3'd6 ||
          (BlockIn != BlockOut && map.src == 2'(tsr_isa_pkg::AluSpaceInp));
      rounds = map.src == 2'(tsr_isa_pkg::AluSpaceAcc);
      row_reduce_bad = rows_bad || rounds || reduce.tail == '0 || 32'(reduce.tail) > BlockOut;
      row_map_bad = rows_bad || map.dst == 2'(tsr_isa_pkg::AluSpaceAcc) || $signed(map.low) > $signed(map.high) ||
          (BlockIn != BlockOut && map.dst == 2'(tsr_isa_pkg::AluSpaceInp)) || map.param_loop == 3'd6;
      for (int unsigned k = 0; k < 6; k++) begin
        if (3'(6 - k) <= map.row && reduce.scalar_stride[k] != '0) row_reduce_bad = 1'b1;
        if (3'(6 - k) <= map.row && map.scalar_stride[k] != '0) row_map_bad = 1'b1;
      end
      no_moments = reduce.zero == '0 && reduce.length == '0 && !reduce.centre && reduce.shift == '0 &&
          reduce.offset == '0 && reduce.epsilon == '0;
      case (reduce.operation)
        2'(tsr_isa_pkg::ReductionMax): if (!no_moments || reduce.table_ != '0) row_reduce_bad = 1'b1;
        2'(tsr_isa_pkg::ReductionSumExp): if (!no_moments) row_reduce_bad = 1'b1;
        default: begin
          if (!typed || reduce.limited || reduce.table_ != '0 || reduce.length == '0 || reduce.length > 13'd4096 ||
              reduce.shift > 5'd16)
            row_reduce_bad = 1'b1;
        end
      endcase
      if (map.operation == 2'(tsr_isa_pkg::MappingSumSoftmax)) begin
        if (map.src == map.dst || map.tail == '0 || 32'(map.tail) > BlockOut) row_map_bad = 1'b1;
        if (rounds && map.src_unsigned) row_map_bad = 1'b1;
      end else if (rounds || map.tail != '0 || map.sum_table != '0) begin
        row_map_bad = 1'b1;
      end
      if (map.operation != 2'(tsr_isa_pkg::MappingNormalise)) begin
        if ((map.param_addr != '0 && !rounds) || map.zero != '0 || map.param_loop != 3'd7) row_map_bad = 1'b1;
      end else if (!typed || map.limited || map.table_ != '0) begin
        row_map_bad = 1'b1;
      end
    end
  end

  always_comb begin
    opcode_bad_o = 1'b0;
    operand_bad_o = '0;
    if (check_i) begin
      opcode_bad_o = tsr_isa_pkg::instruction_of(load.header.opcode) == '0 ||
          (RowLanes == 0 && (load.header.opcode == 6'(tsr_isa_pkg::OpcodeRowReduce) ||
                             load.header.opcode == 6'(tsr_isa_pkg::OpcodeRowMap)));
      // One argument for each instruction: finish, fence, load, store, gemm, alu, row_reduce, row_map.
      operand_bad_o = tsr_isa_pkg::broken_by(word_i, finish_bad, fence_bad, load_bad, store_bad, gemm_bad, alu_bad,
                                             row_reduce_bad, row_map_bad);
    end
  end

  logic unused;
  assign unused = &{1'b0, fence, load, store, gemm, alu, reduce, map};

endmodule
