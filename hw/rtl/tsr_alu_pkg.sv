// SPDX-License-Identifier: Apache-2.0
// What the parts of the vector engine (tsr_alu) hand to one another. Yosys 0.23 takes structures neither as ports nor as
// arguments of $bits, so a port is a vector of the bits that are named here, and the module assigns it to the structure.
/* verilator lint_off UNUSEDPARAM */  // not every module needs every width
package tsr_alu_pkg;

  // For tsr_requantise.
  typedef struct packed {
    logic convert;
    logic [9:0] low;
    logic [9:0] high;
    logic [8:0] out_zero;
  } bounds_t;
  localparam int unsigned BoundsBits = 30;

  typedef struct packed {
    logic enable;
    logic [3:0] number;
  } table_t;

  // For the stages behind tsr_requantise.
  typedef struct packed {
    table_t first;
    logic table_unsigned;
    logic [1:0] second_op;
    logic second_unsigned;
    logic second_swap;
    table_t second;
  } after_t;
  localparam int unsigned AfterBits = 15;

  // Constants of the second operation, without reserved bits.
  localparam int unsigned ConstantBits = 184;

  // What an instruction's nest is loaded with, the second operand first.
  typedef struct packed {
    logic [2:0] param_loop;
    logic [9:0] param_before;  // the first address less one
    logic [2:0] reduce;
    logic [251:0] strides;
    logic [71:0] extents;
    logic [41:0] addresses;
  } nest_t;
  localparam int unsigned NestBits = 382;

  // What else an instruction says.
  typedef struct packed {
    logic signal;
    logic [31:0] pc;
    logic [1:0] src;
    logic [1:0] dst;
    logic sums;  // its reduction; else a maximum
    logic src_unsigned;
    bounds_t bounds;
    after_t after;
  } instruction_t;
  localparam int unsigned InstructionBits = 84;

  // What a read takes along to the stages in front of tsr_requantise.
  typedef struct packed {
    logic first;  // of its instruction
    logic take_src;
    logic take_second;
    logic completing;
    logic raw;  // goes to ACC as it is
    logic adds;  // to what is in the reduction register
    logic compares;
    logic src_unsigned;
    logic [1:0] src;
    logic [9:0] param_address;
    bounds_t bounds;
  } read_t;
  localparam int unsigned ReadBits = 50;

endpackage
/* verilator lint_on UNUSEDPARAM */
