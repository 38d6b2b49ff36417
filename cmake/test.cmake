# SPDX-License-Identifier: Apache-2.0

# Where the default model lies, or will lie once scripts/model.sh has run (make test sees to it).
if(NOT DEFINED ENV{WEIR_TEST_MODEL})
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/model.sh --path
        OUTPUT_VARIABLE model OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
else()
    set(model "$ENV{WEIR_TEST_MODEL}")
endif()
set(WEIR_TEST_MODEL "${model}")

# What a test that was killed leaves behind lies here; scripts/test.sh empties it.
set(WEIR_TEST_TMP ${PROJECT_BINARY_DIR}/tmp)
file(MAKE_DIRECTORY ${WEIR_TEST_TMP})

# Half a minute or more each in a release build, or in a build without llama.cpp; scripts/test.sh prints the
# ten longest.
set(WEIR_LONG_TESTS "^((heads|invariance|invariant|cli|estimate|cache_dir|speculate|calls|engine|prefix|\
adapter)_model_test|invariance_avx2|(speculate|random_schedule|kinds_draft|attention|automaton|llama_automaton|llama_adapter|\
media_llama|hub_http|cli_top|packages|python|install|dist|mix_prebuilt|server|llama_chat)_test|chat_(limits|depth|continued|refused|parser_templates)_test|\
server_(access|faults|linear|resume|dialects_model|ends_llama|hints|progress|shares)_test)$")

# What the tests with the label `threads` need: scripts/check.sh builds no more for TSan.
if(NOT TARGET threads_tests)
    add_custom_target(threads_tests)
    add_dependencies(threads_tests weir_cli weir_bench)
endif()

# weir_test(NAME LABEL SOURCE COMMAND...): registers a test, with the environment that all tests get. From its
# source it learns two further labels: `threads` (what runs under TSan) and `model` (needs the real model).
function(weir_test name label source)
    set(labels ${label})
    # In Python: what asks a server, and the commands that run an engine. Not what looks at a terminal: those tests wait for
    # pictures, which a slow program draws late.
    file(READ ${source} text)
    weir_has_word(threads "${text}" pthread thrd_ weir_engine_create "\nfrom serve import")
    weir_has_word(terminal "${text}" "\nfrom terminal import" "\nfrom tmux import")
    if((threads AND NOT terminal) OR name MATCHES "^cli_(run|stream|replay|bench)_test$")
        list(APPEND labels threads)
        if(TARGET ${name})
            add_dependencies(threads_tests ${name})
        endif()
    endif()
    weir_has_word(needs_model "${text}" WEIR_TEST_MODEL)
    if(needs_model)
        list(APPEND labels model)
    endif()
    # Which labels a test gets follows its text.
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    # Templates recurse deeply: they use up ASan's fake stack, and every call after that searches all of it.
    set(use_after_return 1)
    if(name MATCHES "chat")
        set(use_after_return 0)
    endif()
    set(environment
        WEIR_TEST_MODEL=${WEIR_TEST_MODEL}
        WEIR_SOURCE_DIR=${PROJECT_SOURCE_DIR}
        WEIR_BUILD_DIR=${PROJECT_BINARY_DIR}
        WEIR_BIN=${PROJECT_BINARY_DIR}/weir
        WEIR_CONFIG= # the user's own config file is no test's business
        TMPDIR=${WEIR_TEST_TMP}
        WEIR_LLAMA_SOURCE=${WEIR_LLAMA_SOURCE}
        WEIR_LLAMA_BUILD=${WEIR_LLAMA_BUILD}
        ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=${use_after_return}
        UBSAN_OPTIONS=print_stacktrace=1
        TSAN_OPTIONS=halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp)
    if(WEIR_SANITIZE)
        list(APPEND environment WEIR_SANITIZED=${WEIR_SANITIZE}) # for checks.effort; C has effort.h
    endif()
    # Threads that wait for each other take twice the processor time beside other tests. So the programs that tests in
    # Python start compute with one; examples, programs of the guides and invariance_model_test have several, and so has
    # server_dialects_model_test, which draws two answers at once: threads share that (src/engine/step.c).
    weir_needs_llama(computes ${source})
    set(one_thread OFF)
    if(computes AND source MATCHES "\\.py$" AND NOT name STREQUAL "server_dialects_model_test")
        set(one_thread ON)
        list(APPEND environment CLI_TEST_CONFIG=${PROJECT_SOURCE_DIR}/tests/support/one_thread.conf) # read by checks.environment
    endif()
    # The longest begin first, so that none is left alone at the end. Elixir's, the suites of two packages beside each other,
    # takes several times as long as the next one.
    if(name STREQUAL elixir)
        set_tests_properties(${name} PROPERTIES COST 400)
    elseif(name MATCHES "${WEIR_LONG_TESTS}")
        set_tests_properties(${name} PROPERTIES COST 200)
    elseif(needs_model)
        set_tests_properties(${name} PROPERTIES COST 100)
    endif()
    # An engine on the real model computes with two threads; most other tests wait for a server or a terminal.
    if(needs_model AND NOT one_thread)
        set_tests_properties(${name} PROPERTIES PROCESSORS 2)
    endif()
    # The limit is for tests that hang: a long one takes ten minutes on a busy machine, and more on a slower one.
    set_tests_properties(${name} PROPERTIES TIMEOUT 2400 SKIP_RETURN_CODE 77 LABELS "${labels}" ENVIRONMENT "${environment}")
endfunction()

# weir_has_word(RESULT TEXT WORD...): true if the text has one of the words. Regular expressions of CMake take a hundred times as long, and
# hundreds of texts are read in each configuration.
function(weir_has_word result text)
    foreach(word ${ARGN})
        string(FIND "${text}" "${word}" at)
        if(NOT at EQUAL -1)
            set(${result} ON PARENT_SCOPE)
            return()
        endif()
    endforeach()
    set(${result} OFF PARENT_SCOPE)
endfunction()

# weir_needs_llama(RESULT SOURCE): true if this test cannot be built or run without llama.cpp.
function(weir_needs_llama result source)
    file(READ ${source} text)
    weir_has_word(needs "${text}" WEIR_TEST_MODEL tiny_gguf.py temp_model\( temp_projector\( weir__backend_llama "<llama.h>")
    weir_has_word(may_include "${text}" "\"llama" "\"ggml" "\"gguf")
    if(may_include AND text MATCHES "\"(llama|ggml|gguf)[^\"/\n]*\\.h\"")
        set(needs ON)
    endif()
    set(${result} ${needs} PARENT_SCOPE)
endfunction()
