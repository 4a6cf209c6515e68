# SPDX-License-Identifier: Apache-2.0
# The C library for other CMake projects: `cmake --install build/release --component library --prefix DIR`, then
# find_package(Tessera) and the target Tessera::tessera. Without --component the command and the machines come too.
include(CMakePackageConfigHelpers)
set_target_properties(tessera_c PROPERTIES EXPORT_NAME tessera VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(tessera tessera_c PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${LLVM_LIBRARY_DIRS}")
install(TARGETS tessera RUNTIME DESTINATION bin)
install(TARGETS tessera_c EXPORT TesseraTargets LIBRARY DESTINATION lib COMPONENT library)
install(FILES tessera.h DESTINATION include/tessera COMPONENT library)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION lib/cmake/Tessera COMPONENT library)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES package/TesseraConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TesseraConfigVersion.cmake
        DESTINATION lib/cmake/Tessera COMPONENT library)
