// SPDX-License-Identifier: Apache-2.0
// The vector engine's stages between a read and tsr_requantise. Enters: reads (tsr_alu_issue) and the memories' answers to
// them. Leaves: a vector whose reduction ends, its second operand a cycle before, and the address of its channels in PARAM,
// so that PARAM answers in the cycle of the vector. Stage 1: data are back; what a refused write holds here is kept,
// because other engines share the read ports. Stage 2: the source's values. Stage 3: their sum or maximum.
//
// Latency: three cycles behind the read. Throughput: one read a cycle. Back-pressure: enable_i = 0 holds. Reset:
// synchronous, active low, of what is valid.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu_source #(
  parameter int unsigned Lanes    = 8,
  parameter int unsigned RowLanes = 0
) (
  input  logic                              clk_i,
  input  logic                              rst_ni,
  input  logic                              enable_i,
  input  logic                              enable_data_i,  // the same
  input  logic                              issue_i,
  input  logic [tsr_alu_pkg::ReadBits-1:0]   read_i,
  input  logic [32*Lanes-1:0]               acc_rdata_i,
  input  logic [8*Lanes-1:0]                out_rdata_i,
  input  logic [8*Lanes-1:0]                inp_rdata_i,
  // Rows: their answers take the way to the first stage; entries of ACC, to be rounded, through all of them.
  input  logic                              rows_i,
  input  logic                              rows_round_i,  // a read of ACC is granted
  input  logic                              rows_read_i,
  input  logic [1:0]                        rows_space_i,
  output logic [8*Lanes-1:0]                rows_bytes_o,
  // PARAM, whose port also reads constants: not while the next stage will take its answer.
  input  logic                              constant_want_i,
  output logic                              constant_read_o,
  output logic                              param_busy_o,
  output logic                              param_vector_o,  // the address is a vector's
  output logic                              param_fetch_o,
  output logic [9:0]                        param_address_o,
  // A vector at the end of stage 3, its second operand in stage 2.
  output logic                              second_valid_o,
  output logic [8*Lanes-1:0]                second_o,
  output logic                              valid_o,
  output logic                              raw_o,
  output logic [tsr_alu_pkg::BoundsBits-1:0] bounds_o,
  output logic [32*Lanes-1:0]               value_o
);

  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut);
  localparam bit Rows = RowLanes != 0;
  localparam logic [1:0] FromKept = 2'd3;

  // The read of a row's entry that is rounded to int8, each with its channels anew. Its address in PARAM comes from rows.
  localparam tsr_alu_pkg::bounds_t Int8 = {1'b1, -10'sd128, 10'sd127, 9'd0};
  localparam tsr_alu_pkg::read_t Rounded = {4'b1101, 4'b0000, SpaceAcc, 10'd0, Int8};  // first, take_src, completing

  tsr_alu_pkg::read_t read, read_1_q, read_2_q;
  logic valid_1_q, fresh_1_q, valid_2_q, valid_3_q, raw_3_q;
  logic [1:0] from_1_q;  // where the source comes from: its space, or what is kept
  tsr_alu_pkg::bounds_t bounds_3_q;
  logic [32*Lanes-1:0] source, held_source_q, source_2_q, reduced, reduced_q;
  logic [8*Lanes-1:0] held_second_q, second_2_q;
  assign read = read_i;

  // PARAM keeps its answer while nothing else is read. An instruction reads its first entry in any case.
  logic convert_1, convert_2, loaded_q;
  logic [9:0] loaded_address_q;
  assign convert_1 = valid_1_q && read_1_q.completing && read_1_q.bounds.convert;
  assign convert_2 = valid_2_q && read_2_q.completing && read_2_q.bounds.convert;
  assign constant_read_o = constant_want_i && enable_i && !convert_2;
  assign param_busy_o = constant_want_i && convert_1 && convert_2;
  assign param_vector_o = convert_2;
  assign param_fetch_o = enable_i && convert_2 && !(loaded_q && loaded_address_q == read_2_q.param_address);
  assign param_address_o = read_2_q.param_address;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      loaded_q <= 1'b0;
      valid_1_q <= 1'b0;
      fresh_1_q <= 1'b0;
      from_1_q <= FromKept;
      valid_2_q <= 1'b0;
      valid_3_q <= 1'b0;
    end else begin
      if (param_fetch_o) loaded_q <= 1'b1;
      else if (constant_read_o) loaded_q <= 1'b0;
      if (enable_i && valid_1_q && read_1_q.first) loaded_q <= 1'b0;
      fresh_1_q <= issue_i;
      from_1_q <= issue_i ? read.src : Rows && rows_read_i ? rows_space_i : FromKept;
      if (enable_i) begin
        valid_1_q <= issue_i || (Rows && rows_round_i);
        valid_2_q <= valid_1_q;
        valid_3_q <= valid_2_q && read_2_q.completing;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (param_fetch_o) loaded_address_q <= read_2_q.param_address;
    if (Rows && rows_i) read_1_q <= Rounded;
    else if (issue_i) read_1_q <= read;
  end

  always_comb begin
    logic [7:0] entry;
    if (!tsr_isa_pkg::Simulated) source = 'x;
    entry = 'x;
    if ((valid_1_q && read_1_q.take_src) || (Rows && rows_i)) begin
      if (from_1_q == FromKept) begin
        source = held_source_q;
      end else if (from_1_q == SpaceAcc) begin
        source = acc_rdata_i;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          entry = from_1_q == SpaceOut ? out_rdata_i[8*l+:8] : inp_rdata_i[8*l+:8];
          source[32*l+:32] = {{24{!read_1_q.src_unsigned && entry[7]}}, entry};
        end
      end
    end
  end
  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) rows_bytes_o[8*l+:8] = source[32*l+:8];
  end

  // One adder a lane; a larger one that is there already stays. The masked operand is in two pieces because Yosys takes the
  // operand of fewer pieces, or by chance, for the one that enters a carry chain twice, where a mask costs a look-up table.
  logic [Lanes-1:0] stays;
  always_comb begin
    logic [31:0] there, more;
    if (!tsr_isa_pkg::Simulated) {stays, reduced} = 'x;
    there = 'x;
    more = 'x;
    if (valid_2_q && read_2_q.take_src) begin
      stays = '0;
      if (tsr_isa_pkg::Simulated && !read_2_q.adds && !read_2_q.compares) begin
        reduced = source_2_q;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          there = reduced_q[32*l+:32];
          more = source_2_q[32*l+:32];
          stays[l] = read_2_q.compares && $signed(more) < $signed(there);
          reduced[32*l+:32] = tsr_isa_pkg::Simulated && stays[l] ? there : more +
              {there[31:16] & {16{read_2_q.adds}}, there[15:0] & {16{read_2_q.adds}}};
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (enable_data_i && valid_2_q) begin
      raw_3_q <= read_2_q.raw;
      bounds_3_q <= read_2_q.bounds;
      if (tsr_isa_pkg::Simulated) begin
        if (read_2_q.take_src) reduced_q <= reduced;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          if (read_2_q.take_src && !stays[l]) reduced_q[32*l+:32] <= reduced[32*l+:32];
        end
      end
    end
    if (valid_1_q) begin
      if (enable_data_i) begin
        read_2_q <= read_1_q;
        if (read_1_q.take_src) source_2_q <= source;
        if (read_1_q.take_second) second_2_q <= fresh_1_q ? out_rdata_i : held_second_q;
      end else if (fresh_1_q) begin
        held_source_q <= source;
        held_second_q <= out_rdata_i;
      end
    end
  end

  assign second_valid_o = valid_2_q && read_2_q.completing;
  assign second_o = second_2_q;
  assign valid_o = valid_3_q;
  assign raw_o = raw_3_q;
  assign bounds_o = bounds_3_q;
  assign value_o = reduced_q;

  logic unused;
  assign unused = &{1'b0, read_1_q, read_2_q, rows_i, rows_round_i, rows_read_i, rows_space_i};

endmodule
/* verilator lint_on LATCH */
