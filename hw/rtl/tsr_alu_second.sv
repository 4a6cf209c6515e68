// SPDX-License-Identifier: Apache-2.0
// The ALU's second operation and second table for whole vectors: SecondLanes lanes work off a vector in Turns cycles.
// Enters: a vector of the first stage, its second operand and what the instruction says. Leaves: the vector of bytes.
// Method: a register that holds the vector while its lanes take their turns; the constants travel inside tsr_second_op;
// a register that collects the bytes of all turns but the last one.
//
// valid_i: a vector, at least Turns enabled cycles after the one before; the ALU's issue sees to that. Latency: from
// valid_i to valid_o, in enabled cycles, alu.turn + Turns - 1 + the registers of tsr_second_op; bytes_o comes one
// later. So do in the last SecondLanes lanes of bytes_o the bytes of a vector without a second operation, which find this
// module empty. The memories join those lanes with the second table's late answer: one of the two is 0. Throughput: a
// vector in Turns cycles. Back-pressure: enable_i = 0 holds every register. Reset: synchronous, clears the valid bits.
// Legal: SecondLanes a divisor of Lanes.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu_second #(
  parameter int unsigned Lanes       = 16,
  parameter int unsigned SecondLanes = 4,
  parameter logic [12:0] Registers   = tsr_isa_pkg::TimingSecondOpRegisters,
  parameter int unsigned Trailing    = tsr_isa_pkg::TimingSecondOpDepth - $countones(Registers)
) (
  input  logic                              clk_i,
  input  logic                              rst_ni,
  input  logic                              enable_i,
  // A vector.
  input  logic                              valid_i,
  input  logic [11*Lanes-1:0]               value_i,
  input  logic [8*Lanes-1:0]                second_i,
  input  logic [1:0]                        operation_i,
  input  logic                              unsigned_i,
  input  logic                              swap_i,
  input  logic                              table_enable_i,
  input  logic [3:0]                        table_i,
  input  logic [183:0]                      constants_i,
  // The vector's last lanes have their value; bytes_o holds all of them in the next enabled cycle.
  output logic                              valid_o,
  output logic [8*Lanes-1:0]                bytes_o,
  input  logic                              first_valid_i,
  input  logic [8*SecondLanes-1:0]          first_bytes_i,
  // The second table (tsr_alu_tables): table and byte of each lane, or that there is none; a cycle later the bytes, or 0.
  output logic                              look_up_o,
  output logic                              look_none_o,
  output logic [12*SecondLanes-1:0]         index_o,
  input  logic [8*SecondLanes-1:0]          bytes_i
);

  localparam int unsigned Turns = Lanes / SecondLanes;
  localparam int unsigned TurnBits = Turns > 1 ? $clog2(Turns) : 1;
  localparam int unsigned Depth = $countones(Registers) + Trailing;
  if (Lanes % SecondLanes != 0) $error("tsr_alu_second: SecondLanes does not divide Lanes");

  // What an entry of PARAM holds for a second operation (isa/semantics.md), reserved bits left out, low bits last.
  typedef struct packed {
    logic [8:0] zy;
    logic [8:0] zx;
    logic minimum;
    logic [8:0] zero;
    logic [41:0] outer_factor;
    logic [9:0] high;
    logic [47:0] inner_addend;
    logic [9:0] low;
    logic [3:0] shift;
    logic [41:0] inner_factor;
  } constants_t;
  typedef struct packed {
    logic enable;
    logic [3:0] number;
  } table_t;
  // What the instruction says, beside the constants.
  typedef struct packed {
    logic [1:0] operation;
    logic is_unsigned;
    logic swap;
    table_t look_up;
  } control_t;

  // The vector whose lanes take their turns.
  logic turning_q;
  logic [TurnBits-1:0] turn_q;
  logic last_turn;
  logic [11*Lanes-1:0] value_q;
  logic [8*Lanes-1:0] second_q;
  control_t control_q;
  constants_t constants_q;
  assign last_turn = turn_q == TurnBits'(Turns - 1);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      turning_q <= 1'b0;
      turn_q <= '0;
    end else if (enable_i) begin
      turning_q <= valid_i || (turning_q && !last_turn);
      if (turning_q) turn_q <= last_turn ? '0 : turn_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (enable_i && valid_i) begin
      value_q <= value_i;
      second_q <= second_i;
      control_q <= {operation_i, unsigned_i, swap_i, table_enable_i, table_i};
      constants_q <= constants_i;
    end
  end

  // The lanes whose turn it is, by a tree: each bit of the turn chooses half. A list of choices becomes a chain.
  logic [11*SecondLanes-1:0] x, y, result;
  logic valid_c;
  always_comb begin
    logic [10:0] value, second;
    logic [11*Lanes-1:0] values;
    logic [8*Lanes-1:0] seconds;
    if (!tsr_isa_pkg::Simulated) x = 'x;
    if (!tsr_isa_pkg::Simulated) y = 'x;
    value = 'x;
    second = 'x;
    values = 'x;
    seconds = 'x;
    if (turning_q) begin
      values = value_q;
      seconds = second_q;
      for (int unsigned b = TurnBits; b > 0; b--) begin
        if (turn_q[b-1]) begin
          values = values >> ((11 * SecondLanes) << (b - 1));
          seconds = seconds >> ((8 * SecondLanes) << (b - 1));
        end
      end
      for (int unsigned l = 0; l < SecondLanes; l++) begin
        value = values[11*l+:11];
        second = {{3{!control_q.is_unsigned && seconds[8*l+7]}}, seconds[8*l+:8]};
        x[11*l+:11] = control_q.swap ? second : value;
        y[11*l+:11] = control_q.swap ? value : second;
      end
    end
  end
  tsr_second_op #(.Lanes(SecondLanes), .Registers(Registers), .Trailing(Trailing)) u_second_op (
    .clk_i, .rst_ni, .enable_i, .operation_i(control_q.operation), .minimum_i(constants_q.minimum),
    .inner_factor_i(constants_q.inner_factor), .inner_addend_i(constants_q.inner_addend),
    .outer_factor_i(constants_q.outer_factor), .shift_i(constants_q.shift), .low_i(constants_q.low),
    .high_i(constants_q.high), .zero_i(constants_q.zero), .zx_i(constants_q.zx), .zy_i(constants_q.zy),
    .valid_i(turning_q), .x_i(x), .y_i(y), .valid_o(valid_c), .value_o(result)
  );
  table_t table_c;
  logic last_c;
  tsr_delay #(.Width($bits(table_c) + 1), .Stages(Depth)) u_table (
    .clk_i, .rst_ni, .enable_i, .valid_i(turning_q), .data_i({control_q.look_up, last_turn}),
    .data_o({table_c, last_c})
  );
  assign valid_o = valid_c && last_c;

  // Beside the second table's answer, in the cycle behind the value: what it is where no table is asked, else 0.
  logic [8*SecondLanes-1:0] plain_q;
  assign look_up_o = enable_i && valid_c && table_c.enable;
  assign look_none_o = enable_i && (valid_c ? !table_c.enable : first_valid_i);
  always_comb begin
    if (!tsr_isa_pkg::Simulated) index_o = 'x;
    if (!tsr_isa_pkg::Simulated || (valid_c && table_c.enable)) begin
      for (int unsigned l = 0; l < SecondLanes; l++) index_o[12*l+:12] = {table_c.number, result[11*l+:8]};
    end
  end
  always_ff @(posedge clk_i) begin
    // A sum of products, not a choice: the first table's answer is late, too.
    if (enable_i && (valid_c || first_valid_i)) begin
      for (int unsigned l = 0; l < SecondLanes; l++) begin
        plain_q[8*l+:8] <= (result[11*l+:8] & {8{valid_c && !table_c.enable}}) | (first_bytes_i[8*l+:8] & {8{!valid_c}});
      end
    end
  end

  // The bytes of all turns.
  if (Turns == 1) begin : gen_whole
    assign bytes_o = plain_q;
  end else begin : gen_collect
    localparam int unsigned Others = 8 * (Lanes - SecondLanes);
    logic [Others-1:0] collected_q;
    logic valid_d_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) valid_d_q <= 1'b0;
      else if (enable_i) valid_d_q <= valid_c;
    end
    always_ff @(posedge clk_i) begin
      if (enable_i && valid_d_q) collected_q <= Others'({bytes_i | plain_q, collected_q} >> (8 * SecondLanes));
    end
    assign bytes_o = {plain_q, collected_q};
  end

  logic unused;
  assign unused = &{1'b0, result, bytes_i};

endmodule
/* verilator lint_on LATCH */
