# SPDX-License-Identifier: Apache-2.0
# The kernel alone through synthesis, placement and routing, without a platform: what it takes and how fast it can be, within an
# hour and on a free edition of the tools. Enters: the folder that configure.py wrote, a part, a clock in MHz. Leaves: the
# reports utilization.txt and timing.txt, and a checkpoint, in the folder's subfolder ooc.
#
#   vivado -mode batch -source synth_ooc.tcl -tclargs FOLDER PART MHZ

if {[llength $argv] != 3} {
  error "usage: vivado -mode batch -source synth_ooc.tcl -tclargs FOLDER PART MHZ"
}
lassign $argv folder part mhz
set folder [file normalize $folder]
set here [file dirname [file normalize [info script]]]
source [file join $here .. .. isa generated kernel_arguments.tcl]
source [file join $folder sources.tcl]
set reports [file join $folder ooc]
file mkdir $reports

foreach file $kernel_sources {
  if {[file extension $file] eq ".sv"} {
    read_verilog -sv $file
  } else {
    read_verilog $file
  }
}
if {[llength $kernel_ultra] != 0} {
  read_xdc [file join $folder memories.xdc]
}
# The clock is a file, so that synthesis knows it too: a design with ports is there only behind synthesis.
set clock_file [file join $reports clock.xdc]
set channel [open $clock_file w]
puts $channel "create_clock -name $kernel_clock -period [format %.3f [expr {1000.0 / $mhz}]] \[get_ports $kernel_clock\]"
close $channel
read_xdc -mode out_of_context $clock_file
synth_design -top $kernel_name -part $part -mode out_of_context
opt_design
place_design
phys_opt_design
route_design
report_utilization -hierarchical -hierarchical_depth 3 -file [file join $reports utilization.txt]
report_timing_summary -max_paths 10 -file [file join $reports timing.txt]
write_checkpoint -force [file join $reports kernel.dcp]
puts "reports of $kernel_config on $part: $reports"
