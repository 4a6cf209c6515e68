# SPDX-License-Identifier: Apache-2.0
# A bitstream for a board whose memory belongs to a processor beside the logic (Zynq): the packaged kernel, the
# processor, and what joins them. Enters: the folder that configure.py wrote, with the packaged IP in its subfolder ip; a file of the folder boards;
# a clock in MHz; a folder for what is made. Leaves in that folder: tessera.bit, tessera.hwh (what PYNQ reads beside it) and
# tessera.xsa (the hardware for PetaLinux or Vitis).
#
#   vivado -mode batch -source block_design.tcl -tclargs FOLDER boards/BOARD.tcl MHZ OUTPUT
#
# The processor's port M reaches the kernel's registers, the kernel's master the processor's memory. Both ways lead through a
# SmartConnect, which converts widths and, on Zynq-7000, AXI4 to AXI3.

if {[llength $argv] != 4} {
  error "usage: vivado -mode batch -source block_design.tcl -tclargs FOLDER boards/BOARD.tcl MHZ OUTPUT"
}
lassign $argv folder board_file mhz output
set folder [file normalize $folder]
set output [file normalize $output]
set here [file dirname [file normalize [info script]]]
source [file join $here .. .. isa generated kernel_arguments.tcl]
source [file join $folder sources.tcl]
source $board_file
if {![file exists [file join $folder ip component.xml]]} {
  error "no packaged kernel in [file join $folder ip]; run make xo first"
}
file mkdir $output

create_project -force tessera [file join $output project] -part $board_part_name
if {[llength [get_board_parts -quiet $board_files]] != 0} {
  set_property board_part $board_files [current_project]
} else {
  puts "no board files $board_files: the processor keeps its defaults, set DDR and clocks before you trust the bitstream"
  dict unset processor_preset apply_board_preset
}
set_property ip_repo_paths [file join $folder ip] [current_project]
update_ip_catalog

create_bd_design tessera
set processor [create_bd_cell -type ip -vlnv $processor_ip processor]
apply_bd_automation -rule $processor_rule -config $processor_preset $processor
set_property -dict [concat $processor_settings [list $processor_clock_setting $mhz]] $processor
create_bd_cell -type ip -vlnv $kernel_vendor:$kernel_library:$kernel_name:$kernel_version kernel
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset:5.0 reset
foreach way {control memory} {
  set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect:1.0 $way]
}

# One clock and one reset for all.
proc pin {name} { return [get_bd_pins processor/[dict get $::processor_pins $name]] }
connect_bd_net [pin clock] [pin control_clock] [pin memory_clock] [get_bd_pins reset/slowest_sync_clk] \
  [get_bd_pins control/aclk] [get_bd_pins memory/aclk] [get_bd_pins kernel/$kernel_clock]
connect_bd_net [pin reset] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins control/aresetn] [get_bd_pins memory/aresetn] \
  [get_bd_pins kernel/$kernel_reset]
connect_bd_net [get_bd_pins kernel/$kernel_interrupt] [pin interrupt]

# The two buses.
connect_bd_intf_net [get_bd_intf_pins processor/[dict get $processor_ports control]] [get_bd_intf_pins control/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins control/M00_AXI] [get_bd_intf_pins kernel/$kernel_control]
connect_bd_intf_net [get_bd_intf_pins kernel/$kernel_memory] [get_bd_intf_pins memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins memory/M00_AXI] [get_bd_intf_pins processor/[dict get $processor_ports memory]]
assign_bd_address -offset $register_base -range $kernel_control_range [get_bd_addr_segs kernel/$kernel_control/reg0]
assign_bd_address
validate_bd_design
save_bd_design

set design [get_files tessera.bd]
add_files -norecurse [make_wrapper -top -files $design]
set_property top tessera_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
  error "implementation failed; see [file join $output project]"
}
# A bitstream that misses its clock computes wrong results now and then: it is left where Vivado made it.
foreach {check what} {STATS.WNS "the clock" STATS.WHS "hold times"} {
  set slack [get_property $check [get_runs impl_1]]
  if {![string is double -strict $slack] || $slack < 0} {
    error "implementation misses $what of $mhz MHz: worst slack '$slack' ns; give a lower MHZ to make, and see\
      [file join $output project] for the paths"
  }
}
file copy -force [file join $output project tessera.runs impl_1 tessera_wrapper.bit] [file join $output tessera.bit]
file copy -force [file join $output project tessera.gen sources_1 bd tessera hw_handoff tessera.hwh] \
  [file join $output tessera.hwh]
write_hw_platform -fixed -include_bit -force [file join $output tessera.xsa]
puts "bitstream of $kernel_config: [file join $output tessera.bit]"
