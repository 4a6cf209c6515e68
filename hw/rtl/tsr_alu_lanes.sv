// SPDX-License-Identifier: Apache-2.0
// The vector engine's lanes: from a reduced vector to its bytes. Enters: vectors (tsr_alu_source) with their channels from
// PARAM and, beside them, what the stages here need of the instruction; writes of LOAD to the tables. Leaves: a vector
// behind the first table, or behind the second operation. A vector that is raw passes none of it.
//
// Latency: requantise.depth and table.depth of isa/timing.toml to first_value_o, and second_op.depth, a cycle and the
// turns to second_bytes_o. Throughput: one vector a cycle; one in as many cycles as there are turns with a second
// operation. Back-pressure: enable_i = 0 holds. Reset: synchronous, active low, of what is valid.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu_lanes #(
  parameter int unsigned Batch       = 1,
  parameter int unsigned BlockOut    = 8,
  parameter int unsigned SecondLanes = 8,
  parameter int unsigned TableCount  = 1,
  parameter int unsigned TableBytes  = 8,
  parameter int unsigned RowLanes    = 0,
  parameter int unsigned MemoryParity = 0,
  parameter int unsigned SlotBits    = 5,
  parameter logic [8:0]  RequantiseRegisters = 9'h1ff,
  parameter int unsigned RequantiseTrailing  = 0,
  parameter logic [12:0] SecondRegisters     = 13'h1fff,
  parameter int unsigned SecondTrailing      = 0,
  localparam int unsigned Lanes = Batch * BlockOut,
  localparam int unsigned RowBytes = RowLanes != 0 ? 4 * RowLanes : 1
) (
  input  logic                               clk_i,
  input  logic                               rst_ni,
  input  logic                               enable_i,
  // With a vector's last read: what the stages behind tsr_requantise need, and the place of its constants.
  input  logic                               push_i,
  input  logic [tsr_alu_pkg::AfterBits-1:0]   after_i,
  input  logic [SlotBits-1:0]                slot_i,
  output logic [SlotBits-1:0]                slot_o,
  input  logic [tsr_alu_pkg::ConstantBits-1:0] constants_i,  // of slot_o
  // Its second operand, and a cycle later its values.
  input  logic                               second_valid_i,
  input  logic [8*Lanes-1:0]                 second_i,
  input  logic                               valid_i,
  input  logic [tsr_alu_pkg::BoundsBits-1:0]  bounds_i,
  input  logic [32*Lanes-1:0]                value_i,
  input  logic [64*BlockOut-1:0]             param_i,
  // Behind the first table, of vectors without a second operation.
  output logic                               first_valid_o,
  output logic [11*Lanes-1:0]                first_value_o,
  // Bytes of the vector that is written next without a second operation: of lanes that also come from the second table.
  input  logic                               write_valid_i,
  input  logic [8*SecondLanes-1:0]           write_bytes_i,
  // Behind the second operation; the bytes a cycle later, in the last lanes joined with the second table's.
  output logic                               second_valid_o,
  output logic [8*Lanes-1:0]                 second_bytes_o,
  output logic [8*SecondLanes-1:0]           table_bytes_o,
  output logic [SecondLanes-1:0]             table_parity_o,
  // Rows read the first lookup's tables, and for their results tables of their own.
  input  logic                               rows_i,
  input  logic                               rows_look_up_i,
  input  logic [12*Lanes-1:0]                rows_index_i,
  output logic [8*Lanes-1:0]                 rows_bytes_o,
  output logic                               rows_rounded_valid_o,  // a row's vector behind the first stage
  output logic [8*Lanes-1:0]                 rows_rounded_o,
  input  logic                               results_look_up_i,
  input  logic [12*RowBytes-1:0]             results_index_i,
  output logic [8*RowBytes-1:0]              results_bytes_o,
  // Writes of LOAD to the tables, TableBytes at a multiple of them.
  input  logic                               tbl_we_i,
  input  logic [21-$clog2(TableBytes):0]     tbl_waddr_i,
  input  logic [8*TableBytes-1:0]            tbl_wdata_i,
  input  logic [TableBytes-1:0]              tbl_wbe_i,
  output logic                               parity_error_o  // of a read two cycles ago
);

  localparam bit Rows = RowLanes != 0;
  localparam int unsigned RequantiseLatency = $countones(RequantiseRegisters) + RequantiseTrailing;

  // Bias, scale, clamp, zero point. after: what the stages behind need, at stage a behind tsr_requantise and at stage b,
  // where the second operation begins.
  logic [11*Lanes-1:0] value_a, stage_b_q, value_b;
  logic valid_a, valid_b_q, second_on_b;
  logic [8*Lanes-1:0] second_b;
  tsr_alu_pkg::bounds_t bounds;
  tsr_alu_pkg::after_t after_a, after_b_q;
  logic [SlotBits-1:0] slot_a, slot_b_q;
  assign bounds = bounds_i;

`ifdef VERILATOR
  tsr_requantise_plain #(.Lanes(Lanes), .Registers(RequantiseRegisters), .Trailing(RequantiseTrailing)) u_requantise (
`else
  tsr_requantise #(.Lanes(Lanes), .Registers(RequantiseRegisters), .Trailing(RequantiseTrailing)) u_requantise (
`endif
    .clk_i, .rst_ni, .enable_i, .low_i(bounds.low), .high_i(bounds.high), .zero_i(bounds.out_zero), .valid_i,
    .convert_i(bounds.convert), .value_i, .bias_i({Batch{param_i[32*BlockOut-1:0]}}),
    .scale_i({Batch{param_i[64*BlockOut-1:32*BlockOut]}}), .valid_o(valid_a), .value_o(value_a)
  );
  tsr_delay #(.Width(8 * Lanes), .Stages(RequantiseLatency + 2)) u_second (
    .clk_i, .rst_ni, .enable_i, .valid_i(second_valid_i), .data_i(second_i), .data_o(second_b)
  );
  tsr_delay #(.Width(tsr_alu_pkg::AfterBits + SlotBits), .Stages(RequantiseLatency + 3)) u_after (
    .clk_i, .rst_ni, .enable_i, .valid_i(push_i), .data_i({after_i, slot_i}), .data_o({after_a, slot_a})
  );

  // Tables: the first one is read here, the second one behind the second operation.
  logic [8*Lanes-1:0] bytes_b_q;
  logic look_c, none_c;
  logic [12*Lanes-1:0] index_a;
  logic [12*SecondLanes-1:0] index_c;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) index_a = 'x;
    if (!tsr_isa_pkg::Simulated || (valid_a && after_a.first.enable)) begin
      for (int unsigned l = 0; l < Lanes; l++) index_a[12*l+:12] = {after_a.first.number, value_a[11*l+:8]};
    end
  end
  tsr_alu_tables #(
    .Lanes(Lanes), .SecondLanes(SecondLanes), .RowLanes(RowLanes), .TableCount(TableCount), .TableBytes(TableBytes),
    .Parity(MemoryParity)
  ) u_tables (
    .clk_i, .first_i((Rows && rows_look_up_i) || (enable_i && valid_a && after_a.first.enable)),
    .first_index_i(Rows && rows_i ? rows_index_i : index_a), .first_bytes_o(bytes_b_q), .second_i(look_c),
    .rows_i(results_look_up_i), .rows_index_i(results_index_i), .rows_bytes_o(results_bytes_o),
    .second_none_i(none_c || (Rows && rows_i)), .second_index_i(index_c), .second_bytes_o(table_bytes_o),
    .second_parity_o(table_parity_o),
    .we_i(tbl_we_i), .waddr_i(tbl_waddr_i), .wdata_i(tbl_wdata_i), .wbe_i(tbl_wbe_i),
    .error_o(parity_error_o)
  );
  assign rows_bytes_o = bytes_b_q;

  logic rounded_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_b_q <= 1'b0;
    else if (enable_i) valid_b_q <= valid_a && !(Rows && rows_i);
    rounded_q <= Rows && rows_i && valid_a;
  end
  assign rows_rounded_valid_o = rounded_q;
  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) rows_rounded_o[8*l+:8] = stage_b_q[11*l+:8];
  end
  always_ff @(posedge clk_i) begin
    if (enable_i && valid_a) begin
      stage_b_q <= value_a;
      after_b_q <= after_a;
      slot_b_q <= slot_a;
    end
  end
  assign slot_o = slot_b_q;

  always_comb begin
    logic [7:0] entry;
    if (!tsr_isa_pkg::Simulated) value_b = 'x;
    entry = 'x;
    if (valid_b_q) begin
      value_b = stage_b_q;
      if (after_b_q.first.enable) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          entry = bytes_b_q[8*l+:8];
          value_b[11*l+:11] = {{3{!after_b_q.table_unsigned && entry[7]}}, entry};
        end
      end
    end
  end

  // The second operation and the second table.
  assign second_on_b = valid_b_q && after_b_q.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  assign first_valid_o = valid_b_q && !second_on_b;
  assign first_value_o = value_b;
  tsr_alu_second #(
    .Lanes(Lanes), .SecondLanes(SecondLanes), .Registers(SecondRegisters), .Trailing(SecondTrailing)
  ) u_second_stage (
    .clk_i, .rst_ni, .enable_i, .valid_i(second_on_b), .value_i(value_b), .second_i(second_b),
    .operation_i(after_b_q.second_op), .unsigned_i(after_b_q.second_unsigned), .swap_i(after_b_q.second_swap),
    .table_enable_i(after_b_q.second.enable), .table_i(after_b_q.second.number), .constants_i,
    .first_valid_i(write_valid_i), .first_bytes_i(write_bytes_i), .valid_o(second_valid_o), .bytes_o(second_bytes_o),
    .look_up_o(look_c), .look_none_o(none_c), .index_o(index_c), .bytes_i(table_bytes_o)
  );

  logic unused;
  assign unused = &{1'b0, bounds, after_b_q, param_i, rows_i, rows_look_up_i, rows_index_i};

endmodule
/* verilator lint_on LATCH */
