# Compiler settings and the two functions with which every folder declares its targets.

set(CAIRN_WARNINGS -Wall -Wextra -Wshadow -Wno-restrict)
if(CAIRN_WERROR)
  list(APPEND CAIRN_WARNINGS -Werror)
endif()

# x86-64-v3 is the floor of every program and is checked at start. A compiler that fuses a*b+c
# where it likes would give other bits per instruction set: fusing is written by hand.
set(CAIRN_CODE_FLAGS -march=x86-64-v3 -ffp-contract=off -fno-omit-frame-pointer)

if(CAIRN_SANITIZE)
  string(REPLACE "," ";" sanitizers "${CAIRN_SANITIZE}")
  foreach(sanitizer ${sanitizers})
    list(APPEND CAIRN_CODE_FLAGS -fsanitize=${sanitizer})
    add_link_options(-fsanitize=${sanitizer})
  endforeach()
  list(APPEND CAIRN_CODE_FLAGS -fno-sanitize-recover=all)
  # GCC's sanitizer passes raise false positives of these two.
  list(APPEND CAIRN_WARNINGS -Wno-maybe-uninitialized -Wno-tsan)
endif()

function(cairn_settings target)
  target_compile_options(${target} PRIVATE ${CAIRN_WARNINGS} ${CAIRN_CODE_FLAGS})
endfunction()

# cairn_library(NAME HEADERS h... SOURCES cc... DEPENDS target...)
# A static library cairn_NAME with the alias cairn::NAME; its headers are checked to compile alone.
function(cairn_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS" ${ARGN})
  set(target cairn_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(cairn::${name} ALIAS ${target})
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  cairn_settings(${target})
endfunction()

# cairn_test(NAME LABEL label SOURCES cc... DEPENDS target... [TIMEOUT seconds])
# One GoogleTest program, one CTest test. Labels: unit, bits (equality of every bit), faults,
# cluster (real processes), full (what takes hours; tests/run.sh --full).
function(cairn_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    CAIRN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests" CAIRN_BIN="${CMAKE_BINARY_DIR}/bin")
  cairn_settings(${name})
  # Half the time to compile; the libraries that are tested keep their own level.
  target_compile_options(${name} PRIVATE -O1)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
